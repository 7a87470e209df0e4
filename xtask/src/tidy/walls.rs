//! Who may import whom.

use serde_json::Value;

use super::Findings;

/// What one package may import of ours.
struct Wall {
    package: &'static str,
    imports: &'static [&'static str],
    /// Further ones, for its tests.
    tests_import: &'static [&'static str],
}

const WIRE: &str = "pelago-wire";
const STORE: &str = "pelago-store";
const SERVER: &str = "pelago-server";
const FUSE: &str = "pelago-fuse";
const CLIENT: &str = "pelago-client";
const WORKLOAD: &str = "pelago-workload";
const LOSSFS: &str = "pelago-lossfs";

/// The two ends do not know each other; what is measured does not know how it is served.
const WALLS: &[Wall] = &[
    Wall { package: WIRE, imports: &[], tests_import: &[] },
    Wall { package: STORE, imports: &[WIRE], tests_import: &[] },
    Wall { package: SERVER, imports: &[WIRE, STORE], tests_import: &[LOSSFS] },
    Wall { package: FUSE, imports: &[], tests_import: &[] },
    Wall { package: CLIENT, imports: &[WIRE, FUSE], tests_import: &[] },
    Wall { package: WORKLOAD, imports: &[WIRE, CLIENT], tests_import: &[SERVER, STORE] },
    Wall {
        package: "pelago-cli",
        imports: &[WIRE, STORE, SERVER, CLIENT, WORKLOAD],
        tests_import: &[LOSSFS],
    },
    Wall { package: LOSSFS, imports: &[], tests_import: &[] },
    Wall { package: "xtask", imports: &[], tests_import: &[] },
];

/// Edges that are not in the table; `members` is `cargo metadata --no-deps`.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found_for(package: &str, dependency: &str, kind: Option<&str>) -> usize {
        let dependency = json!({ "name": dependency, "kind": kind, "path": "somewhere" });
        let packages = json!({ "packages": [{ "name": package, "dependencies": [dependency] }] });
        let mut found = Findings::default();
        check(&packages, &mut found);
        found.0.len()
    }

    #[test]
    fn the_walls_stand() {
        assert_eq!(found_for(STORE, WIRE, None), 0);
        assert_eq!(found_for(WIRE, STORE, None), 1);
        assert_eq!(found_for(STORE, SERVER, None), 1);
        assert_eq!(found_for(SERVER, CLIENT, None), 1);
        assert_eq!(found_for(SERVER, CLIENT, Some("dev")), 1);
        assert_eq!(found_for(CLIENT, SERVER, Some("dev")), 1);
        assert_eq!(found_for(CLIENT, STORE, None), 1);
        assert_eq!(found_for(WORKLOAD, SERVER, None), 1);
        assert_eq!(found_for(WORKLOAD, SERVER, Some("dev")), 0);
        assert_eq!(found_for("pelago-cli", SERVER, None), 0);
        assert_eq!(found_for("pelago-cli", LOSSFS, None), 1);
        assert_eq!(found_for("pelago-cli", LOSSFS, Some("dev")), 0);
        assert_eq!(found_for("xtask", WIRE, Some("dev")), 1);
        assert_eq!(found_for("pelago-new", WIRE, None), 1);
    }

    #[test]
    fn crates_of_others_are_no_matter_of_walls() {
        let dependency = json!({ "name": "thiserror", "kind": null, "path": null });
        let packages = json!({ "packages": [{ "name": WIRE, "dependencies": [dependency] }] });
        let mut found = Findings::default();
        check(&packages, &mut found);
        assert!(found.0.is_empty());
    }
}
