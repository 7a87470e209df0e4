//! Loads: the clients of a crowd, and the files that they download.

use pelago_testbed::arguments;

use super::Scale;

/// Bytes that a fast client takes in a second.
const RATE: f64 = 5e6;
/// Bytes that a slow client of a mixed crowd takes in a second.
const SLOW_RATE: f64 = RATE / 4.5;
/// Clients of the mixed load, half of each rate.
const MIXED_CLIENTS: usize = 50;
/// The files of the load that has several, and the clients of each. The disk can feed one of each
/// file.
const FILES: usize = 16;
const FILE_CLIENTS: usize = 4;
const FILE_RATE: f64 = 1e6;
/// The clients of the load that waits for no disk.
const CACHED_CLIENTS: usize = 20;
const CACHED_RATE: f64 = 20e6;
/// Memory of a group in which the file stays in the page cache, over the size of the file, and the
/// part of the window in which its clients begin.
const CACHED_MEMORY: u64 = 2;
const CACHED_WINDOW: u32 = 12;

/// A crowd, and the kind of its downloads.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Load {
    pub(super) name: String,
    pub(super) kind: LoadKind,
    pub(super) clients: Vec<ClientClass>,
}

/// Clients of one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ClientClass {
    /// Bytes per second.
    pub(super) rate: f64,
    /// The number of clients.
    pub(super) count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadKind {
    /// All take one file, at one rate.
    Equal,
    /// All take one file, half of them slowly.
    Mixed,
    /// There are several smaller files.
    Files,
    /// The file is in the page cache, and the disk has no limit: the figure is processor time.
    Cached,
}

impl Load {
    /// Returns the load of this name, or of this number of clients.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let class = |rate, count| ClientClass { rate, count };
        let (kind, clients) = match name {
            "mixed" => {
                let each = MIXED_CLIENTS / 2;
                (LoadKind::Mixed, vec![class(RATE, each), class(SLOW_RATE, each)])
            }
            "files" => (LoadKind::Files, vec![class(FILE_RATE, FILES * FILE_CLIENTS)]),
            "cached" => (LoadKind::Cached, vec![class(CACHED_RATE, CACHED_CLIENTS)]),
            number => (LoadKind::Equal, vec![class(RATE, arguments::number(number, "clients")?)]),
        };
        Ok(Self { name: name.to_owned(), kind, clients })
    }

    /// Returns the number of files; 1 is the large one.
    pub(super) const fn files(&self) -> usize {
        match self.kind {
            LoadKind::Files => FILES,
            LoadKind::Equal | LoadKind::Mixed | LoadKind::Cached => 1,
        }
    }

    /// Returns the bytes of each file.
    pub(super) const fn file_bytes(&self, scale: &Scale) -> u64 {
        match self.kind {
            LoadKind::Files => scale.small_bytes(),
            LoadKind::Equal | LoadKind::Mixed | LoadKind::Cached => scale.file_bytes,
        }
    }

    /// Returns the memory of a server with all its page cache.
    pub(super) const fn memory_bytes(&self, scale: &Scale) -> u64 {
        match self.kind {
            LoadKind::Cached => scale.file_bytes * CACHED_MEMORY,
            LoadKind::Equal | LoadKind::Mixed | LoadKind::Files => scale.group_bytes,
        }
    }

    /// Returns the seconds in which clients begin.
    pub(super) const fn window(&self, scale: &Scale) -> u32 {
        match self.kind {
            LoadKind::Cached => scale.window / CACHED_WINDOW,
            LoadKind::Equal | LoadKind::Mixed | LoadKind::Files => scale.window,
        }
    }

    /// Returns the bytes that the slowest client takes in a second.
    pub(super) fn slowest(&self) -> f64 {
        self.clients.iter().map(|class| class.rate).fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_a_name_or_a_number_of_clients() {
        assert_eq!(Load::parse("20").unwrap().clients, [ClientClass { rate: RATE, count: 20 }]);
        let mixed = Load::parse("mixed").unwrap();
        assert_eq!(mixed.clients.iter().map(|class| class.count).sum::<usize>(), MIXED_CLIENTS);
        assert_eq!((mixed.slowest(), mixed.files()), (SLOW_RATE, 1));
        assert_eq!(Load::parse("files").unwrap().files(), FILES);
        assert!(Load::parse("many").is_err());
    }
}
