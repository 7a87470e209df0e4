//! A long line between two machines.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::thread::{self, JoinHandle};

use pelago_slowlink::{Shapes, SlowLink};

use crate::machines::network::Machine;

/// The namespaces of both ends and their addresses, as `SlowLink::describe` names them.
const ENDS: [&str; 2] = ["a", "b"];

/// A line between two namespaces, until its drop. A process has one at a time.
pub(crate) struct Line {
    ends: serde_json::Value,
    /// Dropped to end the line; `None` at the end.
    commands: Option<File>,
    carries: Option<JoinHandle<()>>,
}

impl Line {
    /// Returns a line of these properties ([`Shapes::set`]); `None` if this machine cannot have
    /// one.
    pub(crate) fn new(words: &[&str]) -> Option<Self> {
        Self::seeded(words, 1)
    }

    /// Does the same as [`Self::new`]; the seed decides which packets are lost.
    pub(crate) fn seeded(words: &[&str], seed: u64) -> Option<Self> {
        let mut shapes = Shapes::default();
        words.iter().for_each(|word| shapes.set(word).unwrap());
        let mut link = match SlowLink::open(shapes, seed) {
            Ok(link) => link,
            Err(why) => {
                println!("skipped: not here: no line between namespaces: {why}");
                return None;
            }
        };
        let ends = link.describe();
        let (read, written) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let run = move || link.run(read, io::sink()).unwrap();
        let carries = thread::Builder::new().name("line".to_owned()).spawn(run).unwrap();
        Some(Self { ends, commands: Some(File::from(written)), carries: Some(carries) })
    }

    /// Changes properties of the line.
    pub(crate) fn tell(&self, words: &str) {
        writeln!(self.commands.as_ref().unwrap(), "{words}").unwrap();
    }

    /// Returns a machine at an end, 0 or 1, whose users have their homes in `home`.
    pub(crate) fn machine(&self, end: usize, home: &Path) -> Machine {
        let end = &self.ends[ENDS[end]];
        let [name, address] =
            ["namespace", "address"].map(|key| end[key].as_str().unwrap().to_owned());
        Machine::of_namespace(name, address, home)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(carries) = self.carries.take() {
            let _is_over = carries.join();
        }
    }
}
