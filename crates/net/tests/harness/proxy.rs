//! A proxy between a client and its server. A test can hold the answers, as if the server's process
//! was stopped.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

/// A proxy to a port of this machine. Its threads end with their sockets.
pub(crate) struct Proxy {
    port: u16,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_shut = self.is_shut.lock();
        while *is_shut {
            self.opened.wait(&mut is_shut);
        }
    }
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let gate = Arc::new(Gate::default());
        let own = Arc::clone(&gate);
        let accept = move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let gate = Arc::clone(&own);
                // While the gate is shut, the kernel accepts connections, and nothing answers.
                gate.pass();
                let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let asks = (near.try_clone().unwrap(), far.try_clone().unwrap());
                spawn(move || copy(asks.0, asks.1, || {}));
                spawn(move || copy(far, near, || gate.pass()));
            }
        };
        spawn(accept);
        Self { port, gate }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Holds the bytes of the server from now on, and new connections.
    pub(crate) fn hold_answers(&self) {
        *self.gate.is_shut.lock() = true;
    }

    /// Passes on the held bytes and connections.
    pub(crate) fn let_go(&self) {
        *self.gate.is_shut.lock() = false;
        self.gate.opened.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name("proxy".to_owned()).spawn(run).unwrap();
}

/// Copies bytes until one end ends the connection.
fn copy(mut from: TcpStream, mut to: TcpStream, wait: impl Fn()) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        wait();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _is_connected = end.shutdown(Shutdown::Both);
    }
}
