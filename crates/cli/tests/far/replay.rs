//! Replay attacks: the bytes of a recorded connection, sent again.

use std::fs;
use std::io::Read;
use std::net::Shutdown;

use crate::far::forwarder::Forwarder;
use crate::far::good::with_a_good_mount;
use crate::far::peer::tcp;

/// TLS 1.3 without resumption: each handshake has fresh keys, so that old bytes mean nothing.
#[test]
fn a_recorded_connection_does_nothing_when_it_is_sent_again() {
    with_a_good_mount(|world| {
        let forwarder = Forwarder::to(world.tcp());
        let far = world.mount(&world.address_at(forwarder.port), "recorded", &[]);
        fs::create_dir(far.path("dir")).unwrap();
        fs::write(far.path("file"), "once").unwrap();
        world.unmount(&far);
        let recorded = forwarder.recorded();
        assert!(recorded.len() > 1000, "{} bytes", recorded.len());
        let own = world.volume.files();
        fs::remove_dir(own.join("dir")).unwrap();
        fs::remove_file(own.join("file")).unwrap();
        let sessions = || world.status()["sessions"].as_array().unwrap().len();
        let before = sessions();
        // As a whole, and cut at each of the first records, where the server waits for more.
        for cut in [recorded.len(), 100, 300, 600] {
            let mut socket = tcp(world.tcp());
            let _closed = std::io::Write::write_all(&mut socket, &recorded[..cut]);
            let _ended = socket.shutdown(Shutdown::Write);
            let mut answer = Vec::new();
            // A reset is an end too.
            let _end = socket.read_to_end(&mut answer);
        }
        assert_eq!(sessions(), before);
        assert!(!own.join("dir").exists() && !own.join("file").exists());
    });
}
