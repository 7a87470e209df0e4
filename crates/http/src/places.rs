//! Permits ("places") for large pieces of memory: of responses that do their own reads, and of
//! have-maps. A permit lasts as long as its piece is in memory, and each address has a share.
//!
//! No response waits for a place, which a client that takes nothing could hold for ever: without a
//! place a response goes on with small pieces, one at a time for each connection.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pelago_wire::limits::{HTTP_ADDRESS_PLACES, HTTP_PLACES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a piece that has a place.
pub(crate) const LARGE_BYTES: usize = 64 << 10;
/// Bytes of a piece without a place.
pub(crate) const SMALL_BYTES: usize = 4 << 10;
/// Large pieces of one response that are in memory at a time.
const AHEAD: u32 = 2;

/// The places of a server.
pub(crate) struct Places {
    all: Arc<Semaphore>,
    /// The places of each address that has a connection. A leaf lock.
    addresses: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// The places of one address.
#[derive(Clone)]
pub(crate) struct AddressPlaces {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

/// The permit to have a large piece in memory. It ends with the piece.
pub(crate) struct PlaceGuard {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

/// The pieces of one response.
pub(crate) struct ReplyPieces {
    places: AddressPlaces,
    /// Permits to have pieces in memory: [`AHEAD`] large ones or one small one.
    pieces: Arc<Semaphore>,
}

/// The permit of a response to have a piece of `bytes` bytes in memory.
pub(crate) struct PieceRight {
    pub(crate) bytes: usize,
    _place: Option<PlaceGuard>,
    _piece: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(HTTP_PLACES)), addresses: Mutex::default() }
    }

    /// Returns the places of an address. Of an IPv6 address only the first 64 bits count, because a
    /// machine chooses the others itself.
    pub(crate) fn of(&self, address: IpAddr) -> AddressPlaces {
        let mut addresses = self.addresses.lock();
        let address = source(address);
        let known = addresses.get(&address).and_then(Weak::upgrade);
        let own = known.unwrap_or_else(|| {
            addresses.retain(|_, own| own.strong_count() > 0);
            let own = Arc::new(Semaphore::new(HTTP_ADDRESS_PLACES));
            addresses.insert(address, Arc::downgrade(&own));
            own
        });
        AddressPlaces { all: Arc::clone(&self.all), own }
    }
}

fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

impl AddressPlaces {
    /// Returns a place if one is free.
    fn try_place(&self) -> Option<PlaceGuard> {
        let own = Arc::clone(&self.own).try_acquire_owned().ok()?;
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(PlaceGuard { _all: all, _own: own })
    }

    /// Waits until a place is free, and returns it.
    pub(crate) async fn place(&self) -> Option<PlaceGuard> {
        // The semaphores are never closed.
        let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(PlaceGuard { _all: all, _own: own })
    }

    /// Begins a response.
    pub(crate) fn answer(self) -> ReplyPieces {
        ReplyPieces { places: self, pieces: Arc::new(Semaphore::new(AHEAD as usize)) }
    }
}

impl ReplyPieces {
    /// Returns the permit to have one more piece in memory, of at most `wanted` bytes, once the
    /// client has taken enough of the earlier pieces.
    pub(crate) async fn piece(&self, wanted: u64) -> Option<PieceRight> {
        let large = usize::try_from(wanted).unwrap_or(usize::MAX).min(LARGE_BYTES);
        let mut piece = Arc::clone(&self.pieces).acquire_owned().await.ok()?;
        let place = if large > SMALL_BYTES { self.places.try_place() } else { None };
        if place.is_some() {
            return Some(PieceRight { bytes: large, _place: place, _piece: piece });
        }
        // A small piece is alone in memory: it takes all permits of the response.
        let rest = Arc::clone(&self.pieces).acquire_many_owned(AHEAD - 1).await.ok()?;
        piece.merge(rest);
        Some(PieceRight { bytes: large.min(SMALL_BYTES), _place: None, _piece: piece })
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    const WANTED: u64 = 1 << 20;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn clients_that_take_nothing_leave_places_for_other_addresses() {
        run(async {
            let places = Places::new();
            let mut kept = Vec::new();
            for number in 0..2 * HTTP_ADDRESS_PLACES {
                let answer = places.of(address(1)).answer();
                let piece = answer.piece(WANTED).await.unwrap();
                let is_large = number < HTTP_ADDRESS_PLACES;
                assert_eq!(piece.bytes, if is_large { LARGE_BYTES } else { SMALL_BYTES });
                kept.push((answer, piece));
            }
            let other = places.of(address(2)).answer().piece(WANTED).await.unwrap();
            assert_eq!(other.bytes, LARGE_BYTES);
            kept.clear();
            let again = places.of(address(1)).answer().piece(WANTED).await.unwrap();
            assert_eq!(again.bytes, LARGE_BYTES);
        });
    }

    #[test]
    fn an_answer_goes_on_without_a_place() {
        run(async {
            let places = Places::new();
            let kept: Vec<_> = (0..)
                .map_while(|number| places.of(address((number / 50) as u8)).try_place())
                .take(HTTP_PLACES)
                .collect();
            assert_eq!(kept.len(), HTTP_PLACES);
            let answer = places.of(address(200)).answer();
            for _ in 0..10 {
                assert_eq!(answer.piece(WANTED).await.unwrap().bytes, SMALL_BYTES);
            }
            assert_eq!(answer.piece(8).await.unwrap().bytes, 8);
        });
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_have_one_share_and_are_forgotten() {
        let places = Places::new();
        let one = places.of("2001:db8::1".parse().unwrap());
        let other = places.of("2001:db8::ffff:2".parse().unwrap());
        assert!(Arc::ptr_eq(&one.own, &other.own));
        let mapped = places.of("::ffff:10.0.0.1".parse().unwrap());
        assert!(Arc::ptr_eq(&mapped.own, &places.of(address(1)).own));
        drop((one, other, mapped));
        let _last = places.of(address(9));
        assert_eq!(places.addresses.lock().len(), 1);
    }
}
