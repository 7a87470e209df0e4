//! A loss of power of the server's machine, or of its table alone, while its clients live: what was
//! answered and not safe comes back with them, through real sessions over a Unix socket.

mod power;
mod relay;
mod reopened;
mod served;
