//! The tables of `docs/format.md` with the numbers of later versions are those of the code, and its
//! table of rows has each kind. `PELAGO_GOLDEN=accept` writes the tables.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use pelago_store::key::{RESERVED_KINDS, RESERVED_VOLUME_ROWS, RowKind, reserved_name};
use pelago_store::rows::RESERVED_PEERS;
use pelago_store::volume::NEEDED_FEATURES;

fn table(head: &str, list: &[(u8, &str)]) -> String {
    let mut table = format!("| number | {head} |\n|---|---|\n");
    for (number, name) in list {
        writeln!(table, "| {number} | *{name}* |").unwrap();
    }
    table
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md")
}

#[test]
fn the_document_has_the_reserved_numbers_of_the_code() {
    let document = fs::read_to_string(path()).unwrap();
    let mut expected = document.clone();
    for (name, table) in [
        ("reserved-kinds", table("kind", RESERVED_KINDS)),
        ("reserved-volume-rows", table("row", RESERVED_VOLUME_ROWS)),
        ("reserved-peers", table("peer", RESERVED_PEERS)),
    ] {
        let [begin, end] = ["begin", "end"].map(|part| format!("<!-- {name}:{part} -->\n"));
        let (before, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
        expected = format!("{before}{begin}{table}{end}{after}");
    }
    if std::env::var_os("PELAGO_GOLDEN").is_some_and(|value| value == "accept") {
        fs::write(path(), &expected).unwrap();
    } else {
        assert!(document == expected, "docs/format.md: run this with PELAGO_GOLDEN=accept");
    }
}

#[test]
fn the_document_has_each_kind_and_each_feature() {
    let document = fs::read_to_string(path()).unwrap();
    for kind in RowKind::ALL {
        let number = format!(" | {} | ", kind.number());
        let is_row = |line: &str| line.starts_with("| ") && line.contains(&number);
        assert!(document.lines().any(is_row), "{kind:?}");
    }
    let one_line = document.replace('\n', " ");
    for (bit, name) in NEEDED_FEATURES.iter().skip(1) {
        assert!(one_line.contains(&format!("{bit} *{name}*")), "{name}");
    }
}

/// No number is given twice.
#[test]
fn a_reserved_number_is_of_no_row() {
    for (number, name) in RESERVED_KINDS {
        assert_eq!(RowKind::from_number(*number), None, "{name}");
        assert_eq!(reserved_name(&[*number, 0]), Some(*name));
    }
    for (number, name) in RESERVED_VOLUME_ROWS {
        assert_eq!(reserved_name(&[RowKind::Volume.number(), *number]), Some(*name));
    }
    assert_eq!(reserved_name(&[RowKind::Volume.number(), 1]), None);
    assert_eq!(reserved_name(&[]), None);
}
