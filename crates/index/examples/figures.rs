//! Figures of an index of a million names, and of texts: `cargo run --release -p
//! pelago-index --example figures`.
#![expect(clippy::unwrap_used, reason = "it ends at what it did not expect")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pelago_find::Query;
use pelago_folder::Folder;
use pelago_index::{Candidates, Covered, Document, Names, Origin, Texts};
use pelago_wire::limits::INDEX_TEXT_BYTES;
use pelago_wire::{FileKind, Handle, InodeId, NameHash, Time};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NAMES: u64 = 1_000_000;
const COVERED: Covered = Covered {
    origin: Origin { volume: [7; 16], commit: 1 },
    epoch: 1,
    sequence: 2,
    as_of: Time { seconds: 3, nanos: 4 },
    is_complete: true,
};

/// Returns an open folder.
fn at(folder: &Path) -> Folder {
    Folder::open(folder).unwrap()
}

fn main() {
    a_million_names();
    texts_of_words_that_are_all_different();
    a_hundred_thousand_small_texts();
}

/// Returns a number that looks random.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ number >> 32
}

fn document(number: u64) -> Document {
    let random = mixed(number);
    let words = ["report", "sample", "photo", "index", "main", "lib", "config", "data"];
    let ends = ["rs", "c", "h", "txt", "jpg", "pdf", "py", "json"];
    let [word, end] = [(words, 0), (ends, 3)].map(|(of, bits)| of[(random >> bits & 7) as usize]);
    let name = match number % 1000 {
        7 => format!("{word}-{:x}.tif", random >> 40),
        _ => format!("{word}_{:06x}-{number}.{end}", random >> 40),
    };
    let ino = InodeId::from_raw(number + 10);
    let dir = InodeId::from_raw(number / 50 + 10);
    Document {
        handle: Handle::at(ino, dir, NameHash(mixed(random))),
        name: name.into_bytes(),
        kind: if number.is_multiple_of(50) { FileKind::Directory } else { FileKind::Regular },
        size: random >> (20 + random % 40),
        mtime: Time { seconds: 1_700_000_000 + (random % 100_000_000) as i64, nanos: 5 },
        uid: 1000 + (random % 16) as u32,
    }
}

/// Returns the KiB of the process in memory that is no page of a file.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the time that the process has used of a processor.
fn processor() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn bytes_of(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    files.sum()
}

/// Returns the least time of some calls: others share the machine.
fn least<T>(mut call: impl FnMut() -> T) -> (Duration, T) {
    let mut timed = || {
        let begin = Instant::now();
        let done = call();
        (begin.elapsed(), done)
    };
    let first = timed();
    (0..9).map(|_| timed()).fold(first, |least, next| if next.0 < least.0 { next } else { least })
}

fn a_million_names() {
    let folder = tempfile::tempdir().unwrap();
    let names = Names::open(&at(folder.path())).unwrap();
    let begin = Instant::now();
    let used = processor();
    let mut most = 0;
    let before = memory();
    for number in 0..NAMES {
        let document = document(number);
        names.replace(document.handle.ino, &[document]).unwrap();
        if number % 50_000 == 49_999 {
            names.commit(&COVERED).unwrap();
        }
        if number % 5000 == 0 {
            most = most.max(memory());
        }
    }
    names.commit(&COVERED).unwrap();
    println!("build: {:?}, processor {:?}", begin.elapsed(), processor() - used);
    println!("memory: {} MiB more at most", (most - before) >> 10);
    let query = |names: &Names, text: &str| {
        let query = Query::parse(text.as_bytes()).unwrap();
        let now = Time { seconds: 1_800_000_000, nanos: 0 };
        match names.candidates(query.expr(), now, &|_| None).unwrap() {
            Candidates::Any => None,
            Candidates::These(handles) => Some(handles.len()),
        }
    };
    let exact = String::from_utf8(document(123_456).name).unwrap();
    let queries = [
        format!("name={exact}"),
        "name=absent".to_owned(),
        "name~*.tif".to_owned(),
        "name~report-*.tif".to_owned(),
        "name~*report*.tif kind=file".to_owned(),
        "name~*_0000*".to_owned(),
        "name~*.rs".to_owned(),
        "name~*.tif size>1M".to_owned(),
        "size>1T".to_owned(),
        "mtime<8h".to_owned(),
        "owner=1003".to_owned(),
        "kind=dir".to_owned(),
        "kind=file".to_owned(),
    ];
    for text in &queries {
        let (time, found) = least(|| query(&names, text));
        println!("{text}: {time:?}, {found:?}");
    }
    let begin = Instant::now();
    for number in 0..1000 {
        let document = Document { uid: 3, ..document(mixed(number) % NAMES) };
        names.replace(document.handle.ino, &[document]).unwrap();
    }
    println!("1000 replaced: {:?}", begin.elapsed());
    names.commit(&COVERED).unwrap();
    println!("and committed: {:?}", begin.elapsed());
    drop(names);
    let begin = Instant::now();
    let names = Names::open(&at(folder.path())).unwrap();
    println!("opened: {:?}", begin.elapsed());
    for text in &queries[..3] {
        let (time, found) = least(|| query(&names, text));
        println!("{text}: {time:?}, {found:?}");
    }
    println!("disk: {} MiB", bytes_of(&folder.path().join("names")) >> 20);
}

fn texts_of_words_that_are_all_different() {
    let folder = tempfile::tempdir().unwrap();
    let texts = Texts::open(&at(folder.path())).unwrap();
    let begin = Instant::now();
    let used = processor();
    let before = memory();
    let mut most = 0;
    for number in 0..20 {
        let mut text = String::new();
        for word in 0.. {
            let word = format!("{:x} ", mixed(number << 32 | word) >> 36);
            if text.len() + word.len() > INDEX_TEXT_BYTES {
                break;
            }
            text += &word;
        }
        let handle = Handle::own(InodeId::from_raw(number + 10));
        texts.replace(handle, 1, &text).unwrap();
        most = most.max(memory());
    }
    texts.commit(&COVERED).unwrap();
    most = most.max(memory());
    println!("build: {:?}, processor {:?}", begin.elapsed(), processor() - used);
    println!("memory: {} MiB more at most", (most - before) >> 10);
    println!("disk: {} MiB", bytes_of(&folder.path().join("texts")) >> 20);
}

fn a_hundred_thousand_small_texts() {
    let folder = tempfile::tempdir().unwrap();
    let texts = Texts::open(&at(folder.path())).unwrap();
    let begin = Instant::now();
    let used = processor();
    let before = memory();
    let mut most = 0;
    for number in 0..100_000 {
        // A few words are in most texts, most in a few.
        let word = |place: u64| {
            let random = mixed(number << 16 | place);
            format!("w{:x} ", (random >> 44) >> (random % 20))
        };
        let text: String = (0..400).map(word).collect();
        texts.replace(Handle::own(InodeId::from_raw(number + 10)), 1, &text).unwrap();
        if number % 1000 == 0 {
            most = most.max(memory());
        }
    }
    texts.commit(&COVERED).unwrap();
    println!("build: {:?}, processor {:?}", begin.elapsed(), processor() - used);
    println!("memory: {} MiB more at most", (most - before) >> 10);
    println!("disk: {} MiB", bytes_of(&folder.path().join("texts")) >> 20);
    for words in [&["w1", "w2"][..], &["w1a2b"], &["w1", "w1a2b"], &["wa", "wb", "wc"]] {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (time, hits) = least(|| texts.search(&words, 1000).unwrap());
        println!("{words:?}: {time:?}, {}", hits.len());
    }
}
