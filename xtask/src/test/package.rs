//! The package that a filter names, whose tests are built alone.

use pelago_testbed::workspace;
use serde_json::Value;

/// The beginning of the names of our packages. A filter may leave it out.
const PREFIX: &str = "pelago-";

/// A package of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(super) has_library: bool,
    /// The names of its binaries and of its integration tests.
    binaries: Vec<String>,
    tests: Vec<String>,
    /// Packages without a library, which are selected too: see [`Package::selection`]. The
    /// laboratories are none of them, as no build of all tests has them.
    programs: Vec<String>,
}

impl Package {
    /// Returns the package that a filter names, and the rest of the filter: `meta`, `pelago-meta`,
    /// `meta::lib`, `meta::sessions`. `None` if it names none.
    pub(crate) fn named_by(filter: &str) -> Result<Option<(Self, Option<String>)>, String> {
        Ok(Self::find(&workspace::metadata(&["--no-deps"])?, filter))
    }

    fn find(metadata: &Value, filter: &str) -> Option<(Self, Option<String>)> {
        let (name, rest) = match filter.split_once("::") {
            Some((name, rest)) => (name, Some(rest.to_owned())),
            None => (filter, None),
        };
        let packages = metadata["packages"].as_array()?;
        let package = packages.iter().find(|package| {
            let full = package["name"].as_str().unwrap_or_default();
            full == name || full.strip_prefix(PREFIX) == Some(name)
        })?;
        let is_program =
            |package: &&Value| !has_library(package) && package["name"] != workspace::LAB;
        let package = Self {
            name: name_of(package),
            has_library: has_library(package),
            binaries: targets(package, "bin"),
            tests: targets(package, "test"),
            programs: packages.iter().filter(is_program).map(name_of).collect(),
        };
        Some((package, rest.filter(|rest| !rest.is_empty())))
    }

    /// Returns the arguments by which cargo selects the package, with the features that it has in
    /// the whole workspace.
    ///
    /// Cargo chooses the features of a crate for all packages that it selects, and for this package
    /// alone it would choose fewer, and build hundreds of crates again. The packages without a
    /// library use nearly everything, so with them it chooses as for the whole workspace; they have
    /// no targets of these names, so that nothing of them is built.
    pub(crate) fn selection(&self) -> Vec<String> {
        let mut arguments = vec!["--package".to_owned(), self.name.clone()];
        for program in self.programs.iter().filter(|program| **program != self.name) {
            arguments.extend(["--package".to_owned(), program.clone()]);
        }
        arguments
    }

    /// Returns the arguments with which cargo builds its tests, and what they need.
    pub(crate) fn build_arguments(&self) -> Vec<String> {
        let mut arguments = self.selection();
        if self.has_library {
            arguments.push("--lib".to_owned());
        }
        for binary in &self.binaries {
            arguments.extend(["--bin".to_owned(), binary.clone()]);
        }
        for test in &self.tests {
            arguments.extend(["--test".to_owned(), test.clone()]);
        }
        arguments
    }
}

fn name_of(package: &Value) -> String {
    package["name"].as_str().unwrap_or_default().to_owned()
}

fn has_library(package: &Value) -> bool {
    !targets(package, "lib").is_empty()
}

fn targets(package: &Value, kind: &str) -> Vec<String> {
    let all = package["targets"].as_array().into_iter().flatten();
    let of_kind = all.filter(|target| target["kind"][0] == kind);
    of_kind.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata() -> Value {
        let target = |kind: &str, name: &str| json!({ "kind": [kind], "name": name });
        let meta = [target("lib", "pelago_meta"), target("test", "x")];
        let cli = [target("bin", "pelago"), target("test", "far")];
        json!({ "packages": [
            { "name": "pelago-meta", "targets": meta },
            { "name": "pelago-cli", "targets": cli },
            { "name": "pelago-lab", "targets": [target("bin", "lab")] },
            { "name": "xtask", "targets": [target("bin", "xtask")] },
        ] })
    }

    fn named(filter: &str) -> Option<(String, Option<String>)> {
        Package::find(&metadata(), filter).map(|(package, rest)| (package.name, rest))
    }

    #[test]
    fn a_filter_names_a_package_by_its_first_part() {
        let meta = || "pelago-meta".to_owned();
        assert_eq!(named("meta"), Some((meta(), None)));
        assert_eq!(named("pelago-meta"), Some((meta(), None)));
        assert_eq!(named("meta::"), Some((meta(), None)));
        assert_eq!(named("meta::shard::tests"), Some((meta(), Some("shard::tests".to_owned()))));
        assert_eq!(named("xtask::bin"), Some(("xtask".to_owned(), Some("bin".to_owned()))));
        assert_eq!(named("met"), None);
        assert_eq!(named("far"), None);
    }

    #[test]
    fn only_the_targets_of_the_package_are_built() {
        let arguments = |filter| Package::find(&metadata(), filter).unwrap().0.build_arguments();
        let meta = "--package pelago-meta --package pelago-cli --package xtask --lib --test x";
        assert_eq!(arguments("meta").join(" "), meta);
        let cli = "--package pelago-cli --package xtask --bin pelago --test far";
        assert_eq!(arguments("cli").join(" "), cli);
        let lab = "--package pelago-lab --package pelago-cli --package xtask --bin lab";
        assert_eq!(arguments("lab").join(" "), lab);
    }
}
