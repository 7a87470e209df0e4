//! Reads any bytes as a segment of the spool of a relay. What is kept are whole groups, whose
//! records can all be read, and the next record is added after them.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use pelago_store::folder::Folder;
use pelago_store::relay_spool::SpoolFolder;
use pelago_wire::relay::{Record, RelayMessage, RelayOffer, RelayRepair, RelaySpools as _};

const VOLUME: [u8; 16] = [7; 16];

fuzz_target!(|bytes: &[u8]| {
    let dir = std::env::temp_dir().join(format!("pelago-fuzz-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder for the spools");
    let spools = SpoolFolder::new(Folder::open(&dir).expect("the folder"));
    let mirror = "key@host:1".to_owned();
    let offer = RelayOffer { reign: 1, run: [1; 16], mirror, repair: RelayRepair::Auto };
    drop(spools.open(VOLUME, &offer).expect("a new spool"));
    let of_volume = dir.join("07".repeat(16));
    for entry in fs::read_dir(&of_volume).expect("the spool") {
        let path = entry.expect("a file").path();
        if path.file_name().is_some_and(|name| name != "offer") {
            fs::remove_file(path).expect("a segment");
        }
    }
    fs::write(of_volume.join(format!("{:016x}", 0)), bytes).expect("a segment");
    let mut spool = spools.open(VOLUME, &offer).expect("a spool of any bytes");
    let mut place = spool.place_after(0);
    let end = spool.place_after(u64::MAX);
    while place < end {
        let record = spool.read(place).expect("a record").expect("a whole group");
        assert!(matches!(RelayMessage::decode(&record.body), Ok(RelayMessage::Record(_))));
        place = record.next;
    }
    let record = Record {
        group: u64::MAX,
        number: 1,
        is_last: true,
        is_awaited: false,
        sealed: vec![1; 20],
    };
    let body = RelayMessage::Record(record).encode().expect("a short message");
    spool.append(&body).expect("room for a record");
    assert_eq!(spool.read(end).expect("a record").expect("the new one").body, body);
});
