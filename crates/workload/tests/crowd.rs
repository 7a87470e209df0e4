//! A crowd at a server that sends a file over plain sockets.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use pelago_workload::crowd::{
    CrowdClass, CrowdPlan, DownloadFailure, DownloadForm, RootHasher, hex, run,
};

const FILE_BYTES: usize = 3_000_000;
const CLIENTS: usize = 40;

/// Sends the file, of which one client of all does not get the last byte.
fn serve(mut stream: TcpStream, file: &[u8], is_cut: bool) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        request.push(byte[0]);
    }
    assert!(request.starts_with(b"GET /file HTTP/1.0\r\n"));
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {FILE_BYTES}\r\n\r\n").unwrap();
    stream.write_all(&file[..FILE_BYTES - usize::from(is_cut)]).unwrap();
}

#[test]
fn each_client_of_a_crowd_gets_the_file_or_says_why_not() {
    let file = pelago_random::bytes_of(3, FILE_BYTES);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let plan = CrowdPlan {
        server: listener.local_addr().unwrap(),
        paths: vec!["/file".to_owned()],
        form: DownloadForm::Plain,
        classes: [Some(10e6), None].map(|rate| CrowdClass { rate, clients: CLIENTS / 2 }).to_vec(),
        window: Duration::from_millis(200),
        limit: Duration::from_secs(60),
        seed: 5,
        samples: 4,
    };
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..CLIENTS {
                let (stream, _) = listener.accept().unwrap();
                let file = &file;
                scope.spawn(move || serve(stream, file, number == 9));
            }
        });
        run(&plan).unwrap()
    });
    assert_eq!(outcome.finished().count(), CLIENTS - 1);
    assert!(outcome.finished().all(|download| download.bytes == FILE_BYTES as u64));
    let failed: Vec<_> =
        outcome.downloads.iter().filter_map(|it| it.result.as_ref().err()).collect();
    assert!(matches!(failed[..], [DownloadFailure::Size { .. }]), "{failed:?}");
    let mut hasher = RootHasher::default();
    hasher.update(&file);
    let root = hex(&hasher.finish().unwrap());
    assert_eq!(outcome.to_json()["roots"], serde_json::json!([root]));
}

#[test]
fn a_crowd_without_a_server_ends() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plan = CrowdPlan {
        server: nobody,
        paths: vec!["/".to_owned()],
        form: DownloadForm::Blocks,
        classes: vec![CrowdClass { rate: None, clients: 3 }],
        window: Duration::ZERO,
        limit: Duration::from_secs(60),
        seed: 1,
        samples: 0,
    };
    let outcome = run(&plan).unwrap();
    let refused = |it: &DownloadFailure| matches!(it, DownloadFailure::Connection(_));
    assert!(outcome.downloads.iter().all(|it| it.result.as_ref().is_err_and(refused)));
}
