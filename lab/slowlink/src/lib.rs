//! A slow link between two network namespaces, for tests and measurements: delay, rate, queue, loss
//! one by one or in runs, and cuts, in each direction.
//!
//! The kernel's own emulator (netem) is a module that many kernels lack. Here a process reads the
//! packets of a TUN device in one namespace and writes them to that of the other one, later or not
//! at all. [`Direction`] decides the fate of a packet without I/O; [`SlowLink`] carries packets.
//! Every packet is counted. Nothing here is shipped.

pub use direction::{Direction, Fate, PacketCounts, Tally};
pub use link::{LinkError, SlowLink};
pub use pair::NamespacePair;
pub use shape::{Cut, Runs, SettingError, Shape, Shapes};

mod direction;
mod link;
mod os;
mod pair;
mod pipe;
mod shape;
