//! Measures the time of a query: `cargo run --release -p pelago-keynote --example queries`.
#![expect(clippy::unwrap_used, reason = "a measurement ends at what it did not expect")]

use std::borrow::Cow;
use std::hint::black_box;
use std::time::{Duration, Instant};

use pelago_keynote::share::attribute;
use pelago_keynote::{
    Action, Assertion, ComplianceQuery, Credential, Grant, Principal, Values, policy,
};
use ring::signature::Ed25519KeyPair;

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

/// An action as the server has it: the attributes are made when they are read.
struct Read {
    ancestors: Vec<u64>,
}

impl Action for Read {
    fn attribute(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match name {
            attribute::APP_DOMAIN => Some(Cow::Borrowed(b"pelago")),
            attribute::VOLUME => Some(Cow::Owned("ab".repeat(16).into_bytes())),
            attribute::RIGHT => Some(Cow::Borrowed(b"r")),
            attribute::NOW => Some(Cow::Owned(b"20300101000000".to_vec())),
            attribute::ADDRESS => Some(Cow::Owned(b"00000000000000000000ffffc0000201".to_vec())),
            attribute::ANCESTORS => {
                let numbers = self.ancestors.iter().map(|number| format!("{number:x}/"));
                Some(Cow::Owned(format!("/{}", numbers.collect::<String>()).into_bytes()))
            }
            _ => None,
        }
    }

    fn is_clock(&self, name: &str) -> bool {
        name == attribute::NOW
    }
}

/// Returns the median of the time of a query.
fn median(query: &ComplianceQuery<'_>, assertions: &[Assertion], expected: usize) -> Duration {
    const QUERIES: u32 = 100;
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..QUERIES {
                assert_eq!(black_box(query.ask(black_box(assertions))).value, expected);
            }
            begin.elapsed() / QUERIES
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let values = Values::boolean();
    let action = Read { ancestors: (0..10).map(|depth| 0x2a + depth * 1000).collect() };
    let mut shares = vec![Grant::to_read([0xab; 16], 0x2a)];
    let mut narrow = shares[0].clone();
    narrow.until = Some("20310101000000".to_owned());
    narrow.from = Some("192.0.2.0/24".parse().unwrap());
    shares.push(narrow);
    for share in &shares {
        let conditions = share.conditions();
        for length in [1_u8, 5] {
            let root = policy(&[Principal::of(&key(1))], &[]).unwrap();
            let mut assertions = vec![Assertion::policy(root.as_bytes()).unwrap()];
            for link in 1..=length {
                let licensee = Principal::of(&key(link + 1));
                let credential = Credential { comment: &[], licensee, conditions: &conditions };
                let text = credential.sign(&key(link)).unwrap();
                assertions.push(Assertion::credential(text.as_bytes()).unwrap());
            }
            let test = if share.until.is_some() { "with time and address" } else { "to read" };
            for (last, expected) in [(length + 1, 1), (length + 2, 0)] {
                let requesters = [Principal::of(&key(last))];
                let query =
                    ComplianceQuery { action: &action, requesters: &requesters, values: &values };
                let time = median(&query, &assertions, expected);
                let answer = if expected == 1 { "granted" } else { "refused" };
                println!("a chain of {length}, {test}, {answer}: {time:?}");
            }
        }
    }
}
