//! The tables of `docs/protocol.md` are those of the code. `PELAGO_GOLDEN=accept` writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pelago_wire::Code;
use pelago_wire::blocks::BlockFrameKind;
use pelago_wire::codec::{LayoutRow, RECORDS, REPLIES, REQUESTS};
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{ClosingCode, RefusalCode};
use pelago_wire::reserved::{self, Reserved};

use crate::samples::requests;

fn fields(row: &LayoutRow) -> String {
    let fields: Vec<String> = row.fields.iter().map(|(name, of)| format!("{name}: {of}")).collect();
    if fields.is_empty() { "–".to_owned() } else { format!("`{}`", fields.join(", ")) }
}

/// Adds the lines of reserved numbers.
fn add_reserved(table: &mut String, list: &[Reserved], columns: usize) {
    for Reserved { first, last, name } in list {
        let numbers = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let empty = " – |".repeat(columns - 3);
        writeln!(table, "| {numbers} | *{name}* |{empty} reserved |").unwrap();
    }
}

fn table_of_reserved(what: &str, list: &[Reserved]) -> String {
    let mut table = format!("| {what} | name | |\n|---|---|---|\n");
    add_reserved(&mut table, list, 3);
    table
}

fn table_of_requests() -> String {
    let mut mutations = BTreeMap::new();
    for (_, request) in requests() {
        let name = super::name_of(&request);
        let is_mutation = request.is_mutation();
        let known = *mutations.entry(name).or_insert(is_mutation);
        assert_eq!(known, is_mutation, "{name}: the kind alone decides");
    }
    let mut table =
        "| number | request | fields | reply | mutation |\n|---|---|---|---|---|\n".to_owned();
    for row in REQUESTS {
        let number = row.number;
        let name = row.name;
        let reply = row.reply;
        let mutation = if mutations[name] { "yes" } else { "–" };
        writeln!(table, "| {number} | {name} | {} | {reply} | {mutation} |", fields(row)).unwrap();
    }
    add_reserved(&mut table, reserved::REQUESTS, 5);
    table
}

fn table_of_replies() -> String {
    let mut table = "| number | reply | fields |\n|---|---|---|\n".to_owned();
    for row in REPLIES {
        writeln!(table, "| {} | {} | {} |", row.number, row.name, fields(row)).unwrap();
    }
    add_reserved(&mut table, reserved::REPLIES, 3);
    table
}

fn table_of_records() -> String {
    let mut table = "| type | fields | bytes at most |\n|---|---|---|\n".to_owned();
    for row in RECORDS {
        writeln!(table, "| `{}` | {} | {} |", row.name, fields(row), row.most).unwrap();
    }
    table
}

fn table_of_frames() -> String {
    let mut table = "| kind | frame | body, bytes at most | bulk, bytes at most | number |\n\
                     |---|---|---|---|---|\n"
        .to_owned();
    for kind in FrameKind::ALL {
        let number = kind.number();
        let body = kind.body_limit();
        let bulk = kind.bulk_limit();
        let numbered = if kind.has_number() { "yes" } else { "0" };
        writeln!(table, "| {number} | {kind:?} | {body} | {bulk} | {numbered} |").unwrap();
    }
    add_reserved(&mut table, reserved::FRAMES, 5);
    table
}

fn table_of_codes(
    codes: impl Iterator<Item = (u16, String, &'static str)>,
    reserved: &[Reserved],
) -> String {
    let mut lines: BTreeMap<u16, String> = codes
        .map(|(number, name, says)| (number, format!("| {number} | {name} | {says} |\n")))
        .collect();
    for one in reserved {
        let line = lines.entry(one.first).or_default();
        add_reserved(line, &[*one], 3);
    }
    let lines: String = lines.into_values().collect();
    format!("| number | code | meaning |\n|---|---|---|\n{lines}")
}

fn table_of_block_frames() -> String {
    let mut table = "| kind | frame | payload, bytes at most |\n|---|---|---|\n".to_owned();
    for kind in BlockFrameKind::ALL {
        writeln!(table, "| {} | {kind:?} | {} |", *kind as u16, kind.payload_limit()).unwrap();
    }
    table
}

fn tables() -> [(&'static str, String); 11] {
    let errors = Code::ALL.iter().map(|code| (code.number(), format!("{code:?}"), code.says()));
    let refusals = RefusalCode::ALL.iter();
    let refusals = refusals.map(|code| (code.number(), format!("{code:?}"), code.says()));
    let closings = ClosingCode::ALL.iter();
    let closings = closings.map(|code| (code.number(), format!("{code:?}"), code.says()));
    [
        ("frames", table_of_frames()),
        ("refusals", table_of_codes(refusals, reserved::REFUSALS)),
        ("closings", table_of_codes(closings, reserved::CLOSINGS)),
        ("roles", table_of_reserved("role", reserved::ROLES)),
        ("features", table_of_reserved("bit", reserved::FEATURES)),
        ("recalls", table_of_reserved("kind", reserved::RECALLS)),
        ("records", table_of_records()),
        ("requests", table_of_requests()),
        ("replies", table_of_replies()),
        ("errors", table_of_codes(errors, reserved::ERRORS)),
        ("block-frames", table_of_block_frames()),
    ]
}

#[test]
fn the_document_has_the_tables_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let document = fs::read_to_string(&path).unwrap();
    let mut expected = document.clone();
    for (name, table) in tables() {
        let [begin, end] = ["begin", "end"].map(|part| format!("<!-- {name}:{part} -->\n"));
        let (before, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
        expected = format!("{before}{begin}{table}{end}{after}");
    }
    if std::env::var_os("PELAGO_GOLDEN").is_some_and(|value| value == "accept") {
        fs::write(&path, &expected).unwrap();
    } else {
        assert!(document == expected, "docs/protocol.md: run this with PELAGO_GOLDEN=accept");
    }
}
