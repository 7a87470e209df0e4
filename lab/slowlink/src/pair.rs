//! The two network namespaces at the ends of a link, and their devices.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::os;

/// The beginning of each name; the process that made it follows.
const PREFIX: &str = "pelago-link-";
/// The device in each namespace.
const DEVICE: &str = "slow0";
/// The folder of the names of namespaces.
const FOLDER: &str = "/run/netns";
/// Packets that a device may hold; the queue that counts is the link's.
const DEVICE_QUEUE: &str = "10000";
/// The largest packet.
pub(crate) const MTU: usize = 1500;

/// Two new network namespaces, removed on drop. Processes in them keep them alive, without a name.
#[derive(Debug)]
pub struct NamespacePair {
    maker: u32,
}

impl NamespacePair {
    /// The address of each end.
    pub const ADDRESSES: [&'static str; 2] = ["10.77.4.1", "10.77.4.2"];

    /// Makes both namespaces, without devices. Removes those that a killed process has left.
    ///
    /// # Errors
    /// Returns what `ip` said, for example that this is not root.
    pub fn new() -> io::Result<Self> {
        for maker in makers().into_iter().filter(|maker| !is_alive(*maker)) {
            drop(Self { maker });
        }
        let made = Self { maker: std::process::id() };
        for name in made.names() {
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(made)
    }

    /// Returns the names of both namespaces.
    #[must_use]
    pub fn names(&self) -> [String; 2] {
        ["a", "b"].map(|end| format!("{PREFIX}{}-{end}", self.maker))
    }

    /// Makes a device at an end, 0 or 1, and returns the file that has its packets.
    pub(crate) fn open_end(&self, end: usize) -> io::Result<File> {
        let names = self.names();
        let name = &names[end];
        let home = File::open("/proc/thread-self/ns/net")?;
        enter(&Path::new(FOLDER).join(name))?;
        let opened = open_device();
        // Also after an error: the caller goes on in its own namespace.
        move_into_link_name_space(home.as_fd(), Some(LinkNameSpaceType::Network))?;
        let device = opened?;
        let [own, peer] = [Self::ADDRESSES[end], Self::ADDRESSES[1 - end]];
        ip(&["-n", name, "addr", "add", own, "peer", peer, "dev", DEVICE])?;
        let set = ["-n", name, "link", "set", "dev", DEVICE];
        // Without an address of its own, IPv6 sends nothing that would be counted.
        ip(&[&set[..], &["addrgenmode", "none"]].concat())?;
        let mtu = MTU.to_string();
        ip(&[&set[..], &["mtu", &mtu, "txqueuelen", DEVICE_QUEUE, "up"]].concat())?;
        Ok(device)
    }

    /// Moves the calling thread into the namespace of this name.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn enter(name: &str) -> io::Result<()> {
        enter(&Path::new(FOLDER).join(name))
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        for name in self.names() {
            if Path::new(FOLDER).join(&name).exists()
                && let Err(why) = ip(&["netns", "del", &name])
            {
                eprintln!("left behind: {name}: {why}");
            }
        }
    }
}

fn enter(path: &Path) -> io::Result<()> {
    let namespace = File::open(path)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn open_device() -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    os::make_device(tun.as_fd(), DEVICE)?;
    Ok(File::from(tun))
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {}: {}", arguments.join(" "), said.trim())))
}

/// Returns the processes whose namespaces exist.
fn makers() -> Vec<u32> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut makers: Vec<u32> = names.filter_map(|name| maker_of(&name)).collect();
    makers.sort_unstable();
    makers.dedup();
    makers
}

/// Returns the process that made a namespace of this name.
fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_names_the_process_that_made_it() {
        // Never dropped: it would remove namespaces.
        let pair = std::mem::ManuallyDrop::new(NamespacePair { maker: 4711 });
        assert_eq!(pair.names().map(|name| maker_of(&name)), [Some(4711); 2]);
        assert_eq!(maker_of("pelago-rivals-4711-s"), None);
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
    }
}
