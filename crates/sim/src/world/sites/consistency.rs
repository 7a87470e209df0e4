//! The check of the tables of all sites together, at the end of a run.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use pelago_check::Parts;
use pelago_store::hash::NameHasher;
use pelago_store::key::{self, RowKind};
use pelago_store::rows::{NameRow, Rnode, Row as _};
use pelago_store::table::TableRead as _;
use pelago_store::table::fake::FakeTable;
use pelago_wire::{FileKind, InodeId};

use super::offices::Office;
use crate::shares::VOLUME;

/// The directories of a run, and the names that lead to each.
#[derive(Default)]
struct Tree {
    dirs: Vec<InodeId>,
    names: BTreeMap<InodeId, Vec<String>>,
    intents: Vec<String>,
}

/// Returns what is wrong with the tables of all sites.
pub(super) fn check(offices: &[Office]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut tree = Tree::default();
    for office in offices {
        let table = office.table.fork_crashed(usize::MAX);
        let content = office.content();
        let plan = pelago_check::plan_on(Parts {
            table: &table,
            content: &content,
            volume: VOLUME,
            shard: office.shard(),
            hasher: NameHasher::new(7),
            tags_are_complete: true,
            has_sites: true,
            index: None,
        });
        match plan {
            Ok(plan) if plan.is_whole() => {}
            Ok(plan) => wrong.push(format!("site {} is damaged: {:?}", office.site, plan.findings)),
            Err(error) => wrong.push(format!("site {} cannot be checked: {error}", office.site)),
        }
        tree.read(office.site, &table);
    }
    wrong.extend(tree.wrong());
    wrong
}

impl Tree {
    fn read(&mut self, site: usize, table: &FakeTable) {
        let each = |kind: RowKind, visit: &mut dyn FnMut(&[u8], &[u8])| {
            let range = key::all(kind);
            let read = table.scan(&range.from, &range.to, &mut |key, value| {
                visit(key, value);
                ControlFlow::Continue(())
            });
            read.expect("a table in memory");
        };
        each(RowKind::Name, &mut |key, value| {
            let (dir, _, name) = key::parse_name(key).expect("the key of a name");
            let (_, row) = NameRow::decode(value).expect("a name");
            if row.kind() == FileKind::Directory {
                let name = String::from_utf8_lossy(name);
                let what = format!("{name} in {dir} at site {site}");
                self.names.entry(row.ino()).or_default().push(what);
            }
        });
        each(RowKind::Inode, &mut |_, value| {
            let (_, rnode) = Rnode::decode(value).expect("an rnode");
            if rnode.kind == FileKind::Directory && rnode.links > 0 {
                self.dirs.push(rnode.ino);
            }
        });
        each(RowKind::Intent, &mut |key, _| {
            self.intents.push(format!("a change of two sites is not finished at {site}: {key:?}"));
        });
    }

    fn wrong(mut self) -> Vec<String> {
        let mut wrong = self.intents;
        for dir in self.dirs {
            let names = self.names.remove(&dir).unwrap_or_default();
            let expected = usize::from(dir != InodeId::ROOT);
            if names.len() != expected {
                wrong.push(format!("directory {dir} has {} names: {names:?}", names.len()));
            }
        }
        let nowhere = self.names.into_iter();
        wrong.extend(nowhere.map(|(dir, names)| format!("no directory {dir} is at {names:?}")));
        wrong
    }
}
