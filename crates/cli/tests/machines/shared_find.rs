//! `pelago find` in a folder that is shared with a stranger.

use serde_json::Value;

use crate::machines::network::tried;
use crate::machines::shared::Pair;

fn paths(json: &Value) -> Vec<String> {
    let paths = json["paths"].as_array().unwrap().iter();
    let mut paths: Vec<String> = paths.map(|path| path.as_str().unwrap().to_owned()).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn a_stranger_finds_files_by_tags_names_and_texts_and_none_outside() {
    let Some(pair) = Pair::shared_for("rx") else { return };
    let tree = "echo moon > docs/sub/plan && echo moon > secret/plan \
                && pelago tag docs/sub/plan project=apollo && pelago tag secret/plan project=zeus \
                && pelago tag docs/note project=reef";
    pair.alice.types(&format!("cd ~/pelago/files && {tree}"));
    // An index of the whole volume changes nothing.
    assert_eq!(pair.alice.types("pelago find text:moon ~/pelago/files").out.lines().count(), 2);
    let find = |query: &str| {
        pair.bob.types(&format!("cd ~/shared && pelago find '{query}' . --json")).json()
    };
    let all = find("name~*");
    assert_eq!(paths(&all), ["./note", "./sub", "./sub/deep", "./sub/plan"]);
    assert_eq!(all["examined"], 4);
    assert_eq!(paths(&find("text:moon")), ["./sub/plan"]);
    assert_eq!(paths(&find("tag:project")), ["./note", "./sub/plan"]);
    let found = pair.bob.types("cd ~/shared/sub && pelago find project=apollo . --print0").out;
    assert_eq!(found, "./plan\0");
    assert_eq!(pair.bob.types("cat ~/shared/.find/project=apollo/plan").out, "moon\n");
    for none in ["project=zeus", "name=file", "text:secret"] {
        let found = tried(&pair.bob, &format!("pelago find '{none}' ~/shared"));
        assert!(found.code == Some(1) && found.out.is_empty(), "{none}: {found:?}");
    }
    let values = "exec 3<>~/shared/.pelago-find && echo '?values project' >&3 && cat <&3";
    let values = pair.bob.types(values).out;
    assert!(values.starts_with("value apollo\0value reef\0end "), "{values:?}");
    let owner = tried(&pair.bob, "pelago find owner=root ~/shared");
    assert!(owner.code == Some(2) && owner.err.contains("not supported"), "{owner:?}");
    assert!(owner.err.contains("has no `owner=`"), "{owner:?}");
    pair.finish();
}
