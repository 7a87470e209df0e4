//! A loss of power of the server's machine, or a loss in its table alone, while its clients live:
//! changes that were answered but not safe come back with the clients, through real sessions over a
//! Unix socket.

mod power;
mod relay;
mod reopened;
mod served;
