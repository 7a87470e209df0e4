//! The HTTP server of a volume that is up: `pelago up --http`, a client over TCP, and curl.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pelago_random::bytes_of;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType};

use crate::harness::volume::{Volume, cannot_mount};

/// A deadline for what must come; no test waits for it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A volume with a server.
struct Served {
    volume: Volume,
    address: String,
}

/// An answer.
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Served {
    fn new() -> Option<Self> {
        if let Some(reason) = cannot_mount() {
            println!("skipped: {reason}");
            return None;
        }
        let volume = Volume::new();
        let up = volume.up(&["--http", "127.0.0.1:0", "--json"]);
        let report = up.expect_success().json();
        let url = report["http"].as_str().unwrap();
        let address = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        Some(Self { volume, address })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.volume.files().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Writes a file, and waits until it is closed for the server, too.
    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
        self.volume.wait_until_closed();
    }

    /// Sends a request, and returns the answer with all bytes that come.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if headers.iter().all(|(name, _)| *name != "Host") {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(format!("{text}\r\n").as_bytes()).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        });
        let mut answer = Answer { status, headers: headers.collect(), body: Vec::new() };
        let body = &all[end + 4..];
        answer.body = match answer.header("transfer-encoding") {
            "chunked" => joined(body),
            _ => body.to_vec(),
        };
        answer
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    fn status(&self, path: &str) -> u16 {
        self.get(path).status
    }
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Returns the bytes of a body that is sent in chunks, whatever sizes these have.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|it| it == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        let chunk = &chunks[end + 2..];
        body.extend(&chunk[..size]);
        chunks = &chunk[size + 2..];
    }
}

#[test]
fn a_file_is_sent_whole_in_part_or_not_at_all() {
    let Some(served) = Served::new() else { return };
    // One within the inline limit, one in many pieces.
    for size in [100, 3_000_001] {
        let bytes = bytes_of(size as u64, size);
        served.put("a file.tar.gz", &bytes);
        let whole = served.get("/a%20file.tar.gz");
        assert!(whole.status == 200 && whole.body == bytes);
        assert_eq!(whole.header("content-length"), size.to_string());
        assert_eq!(whole.header("content-type"), "application/gzip");
        let head = served.ask("HEAD", "/a%20file.tar.gz", &[]);
        assert!(head.body.is_empty() && head.header("content-length") == size.to_string());
        let tag = whole.header("etag").to_owned();
        let part = |headers: &[(&str, &str)]| served.ask("GET", "/a%20file.tar.gz", headers);
        let some = part(&[("Range", "bytes=10-59"), ("If-Range", &tag)]);
        assert!(some.status == 206 && some.body == bytes[10..60]);
        assert_eq!(some.header("content-range"), format!("bytes 10-59/{size}"));
        let beyond = part(&[("Range", "bytes=4000000-")]);
        assert_eq!(
            (beyond.status, beyond.header("content-range")),
            (416, format!("bytes */{size}").as_str())
        );
        assert_eq!(part(&[("If-None-Match", &tag)]).status, 304);
        assert_eq!(part(&[("If-Match", "\"other\"")]).status, 412);
        // Of the same size, at the same time of modification.
        let before = fs::metadata(served.path("a file.tar.gz")).unwrap();
        served.put("a file.tar.gz", &bytes);
        let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
        let file = OpenOptions::new().write(true).open(served.path("a file.tar.gz")).unwrap();
        file.set_times(times).unwrap();
        drop(file);
        served.volume.wait_until_closed();
        let again = part(&[("Range", "bytes=10-59"), ("If-Range", &tag)]);
        assert!(again.status == 200 && again.body == bytes, "it may be another one");
    }
    served.volume.finish();
}

#[test]
fn links_lead_nowhere_outside_and_modes_count_for_its_user() {
    let Some(served) = Served::new() else { return };
    fs::create_dir_all(served.path("dir/below")).unwrap();
    served.put("dir/file", b"bytes");
    served.put("secret", b"bytes");
    fs::set_permissions(served.path("secret"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(served.path("closed")).unwrap();
    served.put("closed/file", b"bytes");
    fs::set_permissions(served.path("closed"), Permissions::from_mode(0o700)).unwrap();
    for (link, target) in [
        ("good", "dir/below/../file"),
        ("up", "../../etc/passwd"),
        ("absolute", "/etc/passwd"),
        ("loop", "loop"),
        ("to-dir", "dir"),
    ] {
        symlink(target, served.path(link)).unwrap();
    }
    assert_eq!(served.get("/good").body, b"bytes");
    assert_eq!(served.get("/to-dir/file").body, b"bytes");
    let cases = [
        ("/up", 403),
        ("/absolute", 403),
        ("/loop", 404),
        ("/secret", 403),
        ("/closed/", 403),
        ("/closed/file", 403),
        ("/none", 404),
        ("/dir/file/", 404),
        ("/dir/file/x", 404),
        ("/../etc/passwd", 400),
        ("/%2e%2e/etc/passwd", 400),
        ("/dir", 301),
        ("/dir/", 200),
    ];
    for (path, status) in cases {
        assert_eq!(served.status(path), status, "{path}");
    }
    assert_eq!(served.get("/dir").header("location"), "/dir/");
    assert_eq!(served.ask("PUT", "/dir/file", &[]).status, 405);
    // A page of another name that leads here must not read it.
    assert_eq!(served.ask("GET", "/good", &[("Host", "evil.example")]).status, 421);
    served.volume.finish();
}

#[test]
fn a_directory_is_a_page_or_json() {
    let Some(served) = Served::new() else { return };
    fs::create_dir(served.path("d")).unwrap();
    for number in 0..600 {
        fs::write(served.path(&format!("d/<{number}>")), vec![0; number]).unwrap();
    }
    let page = served.get("/d/");
    let text = String::from_utf8_lossy(&page.body).into_owned();
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(text.matches("<li>").count(), 600);
    assert!(text.contains("<a href=\"./%3C7%3E\">&lt;7></a>") && !text.contains("<script"));
    let list = served.ask("GET", "/d/", &[("Accept", "application/json")]);
    let text = String::from_utf8_lossy(&list.body).into_owned();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let found: Vec<serde_json::Value> =
        lines.filter(|line: &serde_json::Value| line.is_object()).collect();
    assert_eq!(found.len(), 600);
    let seven = found.iter().find(|it| it["name"] == "<7>").unwrap();
    assert!(seven["size"] == 7 && seven["kind"] == "file");
    served.volume.finish();
}

/// A client never takes a mixture of two versions for a file.
#[test]
fn a_file_that_is_written_is_not_sent_and_one_that_changes_is_cut_off() {
    let Some(served) = Served::new() else { return };
    // A smaller one is copied for its downloads.
    let size = (64 << 20) + 1;
    served.put("file", &vec![1; size]);
    let writer = OpenOptions::new().write(true).open(served.path("file")).unwrap();
    let written = served.get("/file");
    assert_eq!((written.status, written.header("retry-after")), (503, "5"));
    drop(writer);
    crate::harness::program::until("it is served", || {
        served.ask("HEAD", "/file", &[]).status == 200
    });
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!("GET /file HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    let writer = OpenOptions::new().write(true).open(served.path("file")).unwrap();
    writer.write_all_at(&[2], 0).unwrap();
    drop(writer);
    let mut rest = Vec::new();
    // The connection ends early, in order or not.
    let _ended = stream.read_to_end(&mut rest);
    assert!(rest.len() + 1000 < size, "{} bytes came", rest.len());
    served.volume.finish();
}

#[test]
fn curl_goes_on_where_it_has_stopped() {
    let Some(served) = Served::new() else { return };
    if Command::new("curl").arg("--version").output().is_err() {
        served.volume.finish();
        return println!("skipped: there is no curl");
    }
    let bytes = bytes_of(7, 2_000_000);
    served.put("file", &bytes);
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("file");
    fs::write(&part, &bytes[..1_234_567]).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "-C", "-", "-o"]).arg(&part);
    assert!(curl.arg(served.url("/file")).status().unwrap().success());
    assert!(fs::read(&part).unwrap() == bytes);
    served.volume.finish();
}

#[test]
fn other_machines_are_let_in_only_if_that_is_said() {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    let volume = Volume::new();
    let refused = volume.up(&["--http", "0.0.0.0:0"]);
    assert!(refused.err.contains("--http-public"), "{}", refused.err);
    refused.expect_code(2);
    let unknown = volume.up(&["--http", "127.0.0.1:0", "--http-as", "no-such-user"]);
    assert!(unknown.err.contains("no-such-user"), "{}", unknown.err);
    unknown.expect_code(2);
    volume.up(&["--http", "0.0.0.0:0", "--http-public"]).expect_success();
    volume.finish();
}

/// Clients that take a little of what waits for them now and then, and others that send a body byte
/// by byte: more of each than a server has places for.
struct Slow {
    stop: Arc<AtomicBool>,
    drip: JoinHandle<()>,
}

impl Slow {
    fn start(served: &Served, count: usize) -> Self {
        let ask = |text: &str| {
            let socket =
                rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            set_socket_recv_buffer_size(&socket, 2048).unwrap();
            let address: SocketAddr = served.address.parse().unwrap();
            rustix::net::connect(&socket, &address).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.write_all(text.as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let host = format!("HTTP/1.1\r\nHost: {}\r\n", served.address);
        let list = format!("GET /many/ {host}Accept: application/json\r\n\r\n");
        let post = format!(
            "POST /whole {host}Accept: application/vnd.pelago.blocks\r\nContent-Type: \
             application/vnd.pelago.have\r\nIf-Match: \"x\"\r\nContent-Length: 1000\r\n\r\nP"
        );
        let takers: Vec<TcpStream> = (0..count).map(|_| ask(&list)).collect();
        let posters: Vec<TcpStream> = (0..count).map(|_| ask(&post)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let drip = move || {
            while !stopped.load(Ordering::Relaxed) {
                for mut taker in &takers {
                    let _nothing_or_some = taker.read(&mut [0; 512]);
                }
                // The pace of slow clients, not a wait for a condition.
                thread::sleep(Duration::from_millis(200));
            }
            drop(posters);
        };
        Self { stop, drip: thread::Builder::new().spawn(drip).unwrap() }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.drip.join().unwrap();
    }
}

#[test]
fn clients_that_take_little_do_not_keep_answers_from_others() {
    let Some(served) = Served::new() else { return };
    fs::create_dir(served.path("many")).unwrap();
    for number in 0..3000 {
        let name = format!("many/{number:04}{}", "n".repeat(200));
        fs::write(served.path(&name), b"").unwrap();
    }
    served.put("small", b"8 bytes.");
    let bytes = bytes_of(9, 700_000);
    served.put("whole", &bytes);
    let listing = |path: &str| {
        let answer = served.ask("GET", path, &[("Accept", "application/json")]);
        assert_eq!(answer.status, 200);
        answer.body
    };
    let before = listing("/many/");
    // More than there are places.
    let slow = Slow::start(&served, 400);
    assert_eq!(served.get("/small").body, b"8 bytes.");
    assert_eq!(served.get("/whole").body, bytes);
    assert!(listing("/many/") == before, "a listing in small pages is the same");
    let headers = [
        ("Accept", "application/vnd.pelago.blocks"),
        ("Content-Type", "application/vnd.pelago.have"),
        ("If-Match", "\"another\""),
        ("Content-Length", "0"),
    ];
    assert_eq!(served.ask("POST", "/whole", &headers).status, 412);
    slow.stop();
    served.volume.finish();
}

#[test]
fn a_page_of_another_site_gets_nothing_from_a_server_of_this_machine() {
    let Some(served) = Served::new() else { return };
    served.put("file", b"bytes");
    let status = |site, mode, dest| {
        let fields = [("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", mode), ("Sec-Fetch-Dest", dest)];
        served.ask("GET", "/file", &fields).status
    };
    assert_eq!(status("cross-site", "no-cors", "script"), 403);
    assert_eq!(status("same-site", "cors", "empty"), 403);
    assert_eq!(status("cross-site", "navigate", "document"), 200, "a link that a user follows");
    assert_eq!(status("same-origin", "no-cors", "image"), 200);
    let answer = served.get("/file");
    assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    served.volume.finish();
}
