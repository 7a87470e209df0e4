//! Walls: which crate may import which. `ARCHITECTURE.md` must show the same table.

use serde_json::Value;

use super::tree::Tree;
use super::{Findings, table};

const DOCUMENT: &str = "ARCHITECTURE.md";
/// The columns of the document's table that are compared.
const COLUMNS: [&str; 3] = ["crate", "may import", "its tests also"];

/// Our packages that one package may import.
struct Wall {
    package: &'static str,
    imports: &'static [&'static str],
    /// Further packages, for its tests only.
    tests_import: &'static [&'static str],
}

const WIRE: &str = "pelago-wire";
const PROTO: &str = "pelago-proto";
const NET: &str = "pelago-net";
const FOLDER: &str = "pelago-folder";
const STORE: &str = "pelago-store";
const META: &str = "pelago-meta";
const DATA: &str = "pelago-data";
const CHECK: &str = "pelago-check";
const SERVER: &str = "pelago-server";
const FIND: &str = "pelago-find";
const INDEX: &str = "pelago-index";
const SEARCH: &str = "pelago-search";
const KEYNOTE: &str = "pelago-keynote";
const FUSE: &str = "pelago-fuse";
const CLIENT: &str = "pelago-client";
const HOLDER: &str = "pelago-holder";
const HTTP: &str = "pelago-http";
const MOUNT: &str = "pelago-mount";
const RANDOM: &str = "pelago-random";
const THREADS: &str = "pelago-threads";
const TRACE: &str = "pelago-trace";
const CHART: &str = "pelago-chart";
const BENCH: &str = "pelago-bench";
const WORKLOAD: &str = "pelago-workload";
const LOSSFS: &str = "pelago-lossfs";
const SLOWLINK: &str = "pelago-slowlink";
const TESTBED: &str = "pelago-testbed";
const LAB: &str = "pelago-lab";
const XTASK: &str = "xtask";

/// The two ends do not know each other; what is measured does not know how it is served.
const WALLS: &[Wall] = &[
    Wall { package: WIRE, imports: &[], tests_import: &[] },
    Wall { package: PROTO, imports: &[WIRE], tests_import: &[] },
    Wall { package: NET, imports: &[WIRE, PROTO, KEYNOTE, TRACE], tests_import: &[] },
    Wall { package: FOLDER, imports: &[], tests_import: &[] },
    Wall { package: STORE, imports: &[WIRE, FOLDER], tests_import: &[] },
    Wall { package: META, imports: &[WIRE, STORE], tests_import: &[] },
    Wall { package: DATA, imports: &[WIRE, STORE, META], tests_import: &[LOSSFS] },
    Wall { package: CHECK, imports: &[WIRE, STORE, INDEX], tests_import: &[META] },
    Wall {
        package: SERVER,
        imports: &[WIRE, PROTO, STORE, META, DATA, SEARCH, KEYNOTE, HOLDER, THREADS, TRACE],
        tests_import: &[CHECK, FIND, LOSSFS, NET, RANDOM],
    },
    Wall { package: FIND, imports: &[WIRE], tests_import: &[] },
    Wall { package: INDEX, imports: &[WIRE, FOLDER, FIND], tests_import: &[] },
    Wall { package: SEARCH, imports: &[WIRE, STORE, META, FIND, INDEX], tests_import: &[] },
    Wall { package: KEYNOTE, imports: &[], tests_import: &[] },
    Wall { package: FUSE, imports: &[TRACE], tests_import: &[] },
    Wall { package: CLIENT, imports: &[WIRE], tests_import: &[] },
    Wall { package: MOUNT, imports: &[WIRE, FIND, CLIENT, FUSE, THREADS], tests_import: &[] },
    Wall { package: HTTP, imports: &[WIRE, FOLDER, PROTO, CLIENT], tests_import: &[] },
    Wall { package: RANDOM, imports: &[], tests_import: &[] },
    Wall { package: THREADS, imports: &[], tests_import: &[] },
    Wall { package: TRACE, imports: &[], tests_import: &[] },
    Wall { package: CHART, imports: &[], tests_import: &[] },
    Wall { package: BENCH, imports: &[WIRE, PROTO, CLIENT, RANDOM, CHART], tests_import: &[] },
    Wall {
        package: WORKLOAD,
        imports: &[WIRE, CLIENT, RANDOM],
        tests_import: &[BENCH, CHECK, SERVER, STORE],
    },
    Wall { package: HOLDER, imports: &[WIRE], tests_import: &[PROTO] },
    Wall {
        package: "pelago-cli",
        imports: &[
            WIRE, NET, STORE, CHECK, SERVER, CLIENT, HOLDER, KEYNOTE, MOUNT, HTTP, FIND, BENCH,
            TRACE,
        ],
        tests_import: &[LOSSFS, RANDOM, SLOWLINK, WORKLOAD],
    },
    Wall { package: LOSSFS, imports: &[], tests_import: &[] },
    Wall {
        package: "pelago-sim",
        imports: &[WIRE, NET, STORE, CHECK, SERVER, CLIENT, HOLDER, KEYNOTE, RANDOM],
        tests_import: &[],
    },
    Wall { package: SLOWLINK, imports: &[RANDOM], tests_import: &[] },
    Wall { package: TESTBED, imports: &[], tests_import: &[] },
    Wall { package: LAB, imports: &[WIRE, NET, RANDOM, CHART, TESTBED], tests_import: &[] },
    Wall { package: XTASK, imports: &[TESTBED], tests_import: &[] },
];

/// Reports imports that the table does not have; `members` is `cargo metadata --no-deps`.
pub(super) fn check(members: &Value, found: &mut Findings) {
    for package in members["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(wall) = WALLS.iter().find(|wall| wall.package == name) else {
            found.of(name, "has no wall in xtask/src/tidy/walls.rs");
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            check_edge(wall, dependency, found);
        }
    }
}

fn check_edge(wall: &Wall, dependency: &Value, found: &mut Findings) {
    // Only our own crates have a path.
    if dependency["path"].is_null() {
        return;
    }
    let name = dependency["name"].as_str().unwrap_or_default();
    let is_for_tests = dependency["kind"] == "dev";
    let may = wall.imports.contains(&name) || is_for_tests && wall.tests_import.contains(&name);
    if !may {
        let kind = if is_for_tests { "its tests may not import" } else { "may not import" };
        found.of(wall.package, format_args!("{kind} {name}"));
    }
}

/// Reports rows of the document's table that differ from [`WALLS`].
pub(super) fn check_document(tree: &Tree, found: &mut Findings) {
    // `documents` reports a missing document.
    let Some(document) = tree.file(DOCUMENT) else { return };
    let rows = rows_of(&document.text);
    if rows.is_empty() {
        found.of(DOCUMENT, format_args!("has no table with the columns {}", COLUMNS.join(", ")));
        return;
    }
    for wall in WALLS {
        let row = [short(wall.package), listed(wall.imports), listed(wall.tests_import)];
        if !rows.contains(&row) {
            let [name, imports, tests] = row;
            let what = format!("the row of `{name}` must say: {imports} | {tests}");
            found.of(DOCUMENT, what);
        }
    }
    for [name, ..] in rows {
        if !WALLS.iter().any(|wall| short(wall.package) == name) {
            found.of(DOCUMENT, format_args!("`{name}` has no wall in xtask/src/tidy/walls.rs"));
        }
    }
}

/// Returns the cells of [`COLUMNS`] in each row of the table that has them, without backticks.
fn rows_of(document: &str) -> Vec<[String; 3]> {
    let cells = |row: table::Row<'_>| {
        let [name, imports, tests] = COLUMNS.map(|column| row.get(column));
        Some([name?, imports?, tests?].map(|cell| cell.trim_matches('`').to_owned()))
    };
    table::rows(document).into_iter().filter_map(cells).collect()
}

fn listed(packages: &[&str]) -> String {
    let names: Vec<String> = packages.iter().map(|package| short(package)).collect();
    if names.is_empty() { "–".to_owned() } else { names.join(", ") }
}

/// Returns the name of a package's folder.
fn short(package: &str) -> String {
    package.strip_prefix("pelago-").unwrap_or(package).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tree::Source;
    use super::*;

    fn found_for(package: &str, dependency: &str, kind: Option<&str>) -> usize {
        let dependency = json!({ "name": dependency, "kind": kind, "path": "somewhere" });
        let packages = json!({ "packages": [{ "name": package, "dependencies": [dependency] }] });
        let mut found = Findings::default();
        check(&packages, &mut found);
        found.0.len()
    }

    #[test]
    fn only_imports_of_the_table_are_allowed() {
        assert_eq!(found_for(STORE, WIRE, None), 0);
        assert_eq!(found_for(WIRE, STORE, None), 1);
        assert_eq!(found_for(STORE, SERVER, None), 1);
        assert_eq!(found_for(SERVER, CLIENT, None), 1);
        assert_eq!(found_for(SERVER, CLIENT, Some("dev")), 1);
        assert_eq!(found_for(CLIENT, SERVER, Some("dev")), 1);
        assert_eq!(found_for(CLIENT, STORE, None), 1);
        assert_eq!(found_for(CLIENT, FUSE, None), 1);
        assert_eq!(found_for(MOUNT, SERVER, None), 1);
        assert_eq!(found_for(WORKLOAD, SERVER, None), 1);
        assert_eq!(found_for(WORKLOAD, SERVER, Some("dev")), 0);
        assert_eq!(found_for("pelago-cli", SERVER, None), 0);
        assert_eq!(found_for("pelago-cli", LOSSFS, None), 1);
        assert_eq!(found_for("pelago-cli", WORKLOAD, None), 1);
        assert_eq!(found_for("pelago-cli", WORKLOAD, Some("dev")), 0);
        assert_eq!(found_for("pelago-cli", LOSSFS, Some("dev")), 0);
        assert_eq!(found_for(XTASK, WIRE, Some("dev")), 1);
        assert_eq!(found_for(XTASK, TESTBED, None), 0);
        assert_eq!(found_for("pelago-new", WIRE, None), 1);
    }

    /// The tests of a crate may use the tools of the laboratories; what is shipped may not, and
    /// nothing imports the laboratories themselves.
    #[test]
    fn nothing_shipped_imports_what_lies_in_lab() {
        let of_lab = [LAB, SLOWLINK, TESTBED];
        for wall in WALLS.iter().filter(|wall| !of_lab.contains(&wall.package)) {
            let may = |package: &&str| wall.package == XTASK && *package == TESTBED;
            let imported =
                wall.imports.iter().find(|package| of_lab.contains(package) && !may(package));
            assert_eq!(imported, None, "{}", wall.package);
        }
        assert!(WALLS.iter().all(|wall| !wall.imports.contains(&LAB)));
    }

    #[test]
    fn walls_do_not_apply_to_other_peoples_crates() {
        let dependency = json!({ "name": "thiserror", "kind": null, "path": null });
        let packages = json!({ "packages": [{ "name": WIRE, "dependencies": [dependency] }] });
        let mut found = Findings::default();
        check(&packages, &mut found);
        assert!(found.0.is_empty());
    }

    #[test]
    fn a_document_with_other_walls_is_found() {
        let row = |wall: &Wall| {
            let [imports, tests] = [listed(wall.imports), listed(wall.tests_import)];
            format!("| `{}` | owns | {imports} | {tests} |\n", short(wall.package))
        };
        let head = "| crate | owns | may import | its tests also |\n|---|---|---|---|\n";
        let found_in = |rows: &str| {
            let text = format!("{head}{rows}\n| other | table |\n|---|---|\n| `gone` | – |\n");
            let file = Source { path: DOCUMENT.to_owned(), text };
            let mut found = Findings::default();
            check_document(&Tree::of(vec![file]), &mut found);
            found.0
        };
        let rows: String = WALLS.iter().map(row).collect();
        assert!(found_in(&rows).is_empty(), "{:?}", found_in(&rows));
        let wrong = rows.replacen("| owns | wire | – |", "| owns | – | – |", 1);
        assert_eq!(found_in(&wrong), ["ARCHITECTURE.md: the row of `proto` must say: wire | –"]);
        assert_eq!(found_in(&row(&WALLS[0])).len(), WALLS.len() - 1);
        let lost =
            "ARCHITECTURE.md: has no table with the columns crate, may import, its tests also";
        assert_eq!(found_in(""), [lost]);
        assert_eq!(found_in(&(rows + "| `new` | owns | – | – |\n")).len(), 1);
    }
}
