//! The rights to a directory that are those to the directory above it, which need no decision of
//! their own: beside a session that knows nothing yet, and decides about each directory anew.

use pelago_keynote::Grant;
use pelago_random::Random;
use pelago_wire::{Code, Handle, Reply, Request};

use super::world::{Guest, World};

/// Directories of a tree, and their moves.
const DIRS: usize = 12;
const MOVES: usize = 8;
/// Credentials of a guest.
const CHAINS: usize = 4;

/// A random tree of directories, and the chains of the guests.
struct Tree {
    world: World,
    /// The directories, each with the text of its name.
    dirs: Vec<(Handle, String)>,
    /// The directory above each; `None` for the root of the volume.
    above: Vec<Option<usize>>,
    chains: Vec<Vec<String>>,
}

impl Tree {
    fn new(random: &mut Random) -> Self {
        let world = World::new();
        let mut tree = Self { world, dirs: Vec::new(), above: Vec::new(), chains: Vec::new() };
        for number in 0..DIRS {
            let above = random.index(number + 1);
            let above = above.checked_sub(1);
            let text = format!("d{number}");
            let made = tree.world.make_dir(tree.handle(above), &text);
            tree.dirs.push((made, text));
            tree.above.push(above);
        }
        // Chains that change something come first.
        let rights: [&str; CHAINS] = ["wcg", "rg", "dg", "rg"];
        for (at, rights) in rights.into_iter().enumerate() {
            let dir = random.index(DIRS);
            let mut chain = vec![tree.signed(1, if at % 2 == 0 { 2 } else { 3 }, dir, rights)];
            if at % 2 == 1 {
                // A second link, for another directory: the chain grants what is in both.
                let dir = random.index(DIRS);
                chain.push(tree.signed(3, 2, dir, rights));
            }
            tree.chains.push(chain);
        }
        tree
    }

    fn handle(&self, dir: Option<usize>) -> Handle {
        dir.map_or(Handle::ROOT, |dir| self.dirs[dir].0)
    }

    fn signed(&self, by: u8, to: u8, dir: usize, rights: &str) -> String {
        let grant = self.world.to_read(self.dirs[dir].0.ino);
        self.world.signed(by, to, &Grant { rights: rights.parse().unwrap(), ..grant })
    }

    /// Begins a session with all chains.
    fn begin(&self) -> Guest {
        let first: Vec<&str> = self.chains[0].iter().map(String::as_str).collect();
        let guest = self.world.begin(self.world.admit(2, &first).unwrap()).unwrap();
        for chain in &self.chains[1..] {
            let chain = chain.iter().map(|text| text.as_bytes().to_vec()).collect();
            let attached = self.world.ask(&guest, Request::Attach { chain }).unwrap();
            assert!(matches!(&attached, Reply::Bytes(why) if why.is_empty()), "{attached:?}");
        }
        guest
    }

    /// Returns the mode that a guest is shown of a directory.
    fn mode(&self, guest: &Guest, dir: usize) -> Result<u16, Code> {
        self.world.attr(guest, self.dirs[dir].0).map(|attr| attr.mode)
    }

    /// Checks each directory, in a random order, by a session that knows others already.
    fn check(&self, guest: &Guest, random: &mut Random) {
        for _ in 0..3 * DIRS {
            let dir = random.index(DIRS);
            let anew = self.mode(&self.begin(), dir);
            assert_eq!(self.mode(guest, dir), anew, "directory {dir}, above: {:?}", self.above);
        }
    }

    /// Moves a directory below another one, which is not below it.
    fn move_one(&mut self, random: &mut Random) {
        let dir = random.index(DIRS);
        let to = random.index(DIRS);
        if self.above[dir] == Some(to) {
            return;
        }
        let mut upwards = Some(to);
        while let Some(here) = upwards {
            if here == dir {
                return;
            }
            upwards = self.above[here];
        }
        let from = self.handle(self.above[dir]);
        self.world.rename(from, self.handle(Some(to)), &self.dirs[dir].1);
        self.above[dir] = Some(to);
    }
}

#[test]
fn rights_from_above_are_those_of_a_decision() {
    for seed in 0..16 {
        let mut random = Random::new(seed);
        let mut tree = Tree::new(&mut random);
        let guest = tree.begin();
        tree.check(&guest, &mut random);
        for _ in 0..MOVES {
            tree.move_one(&mut random);
            tree.check(&guest, &mut random);
        }
    }
}
