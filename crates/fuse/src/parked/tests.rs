//! Requests that are parked, carried out and dropped.

use std::os::unix::net::UnixDatagram;

use super::*;
use crate::bytes::Layout;

const LOOKUP: u32 = 1;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INTERRUPT: u32 = 36;

/// The kernel's end of a descriptor.
struct Kernel {
    end: UnixDatagram,
    device: Arc<Device>,
}

impl Kernel {
    fn new() -> Self {
        let (end, device) = UnixDatagram::pair().unwrap();
        device.set_nonblocking(true).unwrap();
        Self { end, device: Arc::new(Device::new(device.into())) }
    }

    fn send(&self, opcode: u32, unique: u64) {
        let body: Vec<u8> = match opcode {
            LOOKUP => b"a\0".to_vec(),
            INTERRUPT => Layout::<8>::new().u64(2).done().to_vec(),
            _ => vec![0; 24],
        };
        let bytes = u32::try_from(Header::BYTES + body.len()).unwrap();
        let mut header = Layout::<{ Header::BYTES }>::new();
        header.u32(bytes).u32(opcode).u64(unique).u64(1).padding(16);
        let request = [&header.done()[..], &body].concat();
        self.end.send(&request).unwrap();
    }
}

/// Parks what has been sent. Returns the numbers of which was told.
fn park(parked: &Parked, kernel: &Kernel, count: usize) -> Vec<u64> {
    let told = Mutex::new(Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let tell = |note: &Note| told.lock().push(note.header.unique);
            parked.read(&kernel.device, 4096, Layouts::default(), tell).unwrap();
        });
        while told.lock().len() < count {
            thread::yield_now();
        }
        // The thread ends, and nothing that was parked is lost by that.
        parked.end();
    });
    parked.begin();
    told.into_inner()
}

fn next(parked: &Parked) -> Option<u64> {
    parked.next().map(|request| request.note.header.unique)
}

#[test]
fn requests_are_carried_out_in_their_order_by_the_first_that_comes_back() {
    let parked = Parked::default();
    let kernel = Kernel::new();
    kernel.send(LOOKUP, 2);
    parked.read(&kernel.device, 4096, Layouts::default(), |_| unreachable!("it is off")).unwrap();
    parked.begin();
    for (opcode, unique) in [(FLUSH, 4), (INTERRUPT, 6), (RELEASE, 8)] {
        kernel.send(opcode, unique);
    }
    assert_eq!(park(&parked, &kernel, 4), [2, 4, 6, 8]);
    let first = parked.next().unwrap();
    assert_eq!((first.note.header.unique, first.note.wait), (2, Wait::Other));
    let (header, operation) = parse(&first.bytes, Layouts::default()).unwrap();
    assert_eq!(header.unique, 2);
    assert!(matches!(operation, Operation::Lookup { .. }));
    assert!(first.note.to.has(2));
    first.note.to.begin(2);
    assert!(first.note.to.claim(2) && !first.note.to.claim(2));
    assert_eq!(next(&parked), Some(4));
    let interrupt = parked.next().unwrap();
    assert_eq!((interrupt.note.interrupts, interrupt.note.wait), (Some(2), Wait::WriteBack));
    assert_eq!(next(&parked), Some(8));
    assert!(parked.is_on());
    assert_eq!(next(&parked), None);
    assert!(!parked.is_on(), "a thread is back that reads");
    assert_eq!(parked.queue.lock().bytes, 0);
}

/// A close ends locks, and what no caller waits for has no other owner.
#[test]
fn what_no_caller_waits_for_any_more_is_dropped_but_for_closes() {
    let parked = Parked::default();
    let kernel = Kernel::new();
    parked.begin();
    for (opcode, unique) in [(LOOKUP, 2), (FLUSH, 4), (RELEASE, 6), (LOOKUP, 8), (LOOKUP, 10)] {
        kernel.send(opcode, unique);
    }
    park(&parked, &kernel, 5);
    let give_up = |unique: u64| {
        let queue = parked.queue.lock();
        let request = queue.requests.iter().find(|it| it.note.header.unique == unique).unwrap();
        assert!(request.note.to.claim(unique));
    };
    [2, 4, 6, 8].into_iter().for_each(give_up);
    let before = parked.queue.lock().bytes;
    parked.drop_unwanted();
    assert_eq!(parked.queue.lock().bytes, before - 2 * 42);
    give_up(10);
    let close = parked.next().unwrap();
    close.note.to.begin(4);
    assert!(!close.note.to.claim(4), "its reply has been sent");
    assert_eq!(next(&parked), Some(6));
    assert_eq!(next(&parked), None);
}

#[test]
fn what_is_parked_is_bounded() {
    let parked = Parked::default();
    let kernel = Kernel::new();
    parked.begin();
    let mut requests: VecDeque<Request> = VecDeque::new();
    kernel.send(FLUSH, 4);
    park(&parked, &kernel, 1);
    let Request { note, bytes } = parked.next().unwrap();
    while requests.len() < REQUESTS {
        requests.push_back(Request { note: note.clone(), bytes: bytes.clone() });
    }
    let bytes = requests.iter().map(|request| request.bytes.len()).sum();
    *parked.queue.lock() = Queue { requests, bytes };
    assert!(parked.park(|| unreachable!("there is no room")).is_none());
    assert!(parked.next().is_some());
    parked.park(|| None);
    parked.queue.lock().bytes = BYTES;
    assert!(parked.park(|| unreachable!("there is no room")).is_none());
}
