//! Connections of servers of other sites.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_wire::SessionId;
use pelago_wire::handshake::Hello;

use crate::harness::Reads;

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/home.rs"]
mod home;
#[path = "harness/raw.rs"]
mod raw;

type Home = home::Home<Reads>;

/// Returns the sessions, the oldest first.
fn sessions(home: &Home) -> Vec<SessionId> {
    let mut sessions = home.service.sessions();
    sessions.sort_unstable();
    sessions
}

fn hello(nonce: u8) -> Hello {
    Hello { role: Hello::SITE, ..Hello::new([nonce; 16]) }
}

#[test]
fn a_site_that_starts_again_ends_its_earlier_session() {
    let home = Home::new(Reads);
    let (mut first, _) = home.begin(2, &hello(1));
    first.read();
    let (mut other, other_welcome) = home.begin(3, &hello(2));
    other.read();
    let (mut second, second_welcome) = home.begin(2, &hello(3));
    second.read();
    // By then the earlier one has ended: no request of the new one waits for its leases.
    assert_eq!(sessions(&home), [other_welcome.session, second_welcome.session]);
    assert!(first.receive().is_none());
    other.read();
    // A connection that was lost is no new start.
    let again = Hello { resume: Some(second_welcome.session), ..hello(3) };
    let (mut again, again_welcome) = home.begin(2, &again);
    again.read();
    assert!(again_welcome.resumed);
    assert_eq!(sessions(&home), [other_welcome.session, second_welcome.session]);
}

/// Its first bytes may be read late, when the next run works already.
#[test]
fn a_run_that_says_nothing_after_its_hello_ends_no_session() {
    let home = Home::new(Reads);
    let (mut first, first_welcome) = home.begin(2, &hello(1));
    first.read();
    let (_silent, silent_welcome) = home.begin(2, &hello(2));
    first.read();
    assert_eq!(sessions(&home), [first_welcome.session, silent_welcome.session]);
}

#[test]
fn a_late_frame_of_an_earlier_run_does_not_end_the_session_of_the_next_one() {
    let home = Home::new(Reads);
    let (mut first, _) = home.begin(2, &hello(1));
    let (mut second, second_welcome) = home.begin(2, &hello(2));
    first.read();
    second.read();
    assert_eq!(sessions(&home), [second_welcome.session]);
}
