//! Parses any bytes as an assertion, as a revocation and as a block for mail. An assertion has one
//! identity, its fields have a print that is read as the same, and a query has one answer; a block
//! encodes the same chain again.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use pelago_keynote::{
    Assertion, CREDENTIAL_BYTES, Compliance, ComplianceQuery, Grant, Principal, Revocation, Values,
    armor, unarmor,
};

fuzz_target!(|bytes: &[u8]| {
    let parsed = Assertion::parse(bytes);
    if let Ok(assertion) = &parsed {
        assert_eq!(assertion.text().as_bytes(), bytes);
        assert_eq!(Assertion::parse(bytes).as_ref(), Ok(assertion));
        let _granted = Grant::of(assertion);
        let _verified = assertion.verify();
        check_print(assertion);
        assert_eq!(answer(assertion), answer(assertion));
    }
    for strict in [Assertion::credential(bytes), Assertion::policy(bytes)].into_iter().flatten() {
        assert_eq!(parsed.as_ref(), Ok(&strict));
    }
    // Conditions by themselves: most bytes are no assertion.
    if let Ok(text) = str::from_utf8(bytes) {
        let field = text.replace('\n', "\n\t");
        let key = Principal([7; 32]);
        let text = format!("Authorizer: \"POLICY\"\nLicensees: \"{key}\"\nConditions: {field}\n");
        if let Ok(assertion) = Assertion::parse(text.as_bytes()) {
            check_print(&assertion);
            assert_eq!(answer(&assertion), answer(&assertion));
        }
    }
    if let Ok(revocation) = Revocation::parse(bytes) {
        let _verified = revocation.verify();
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(chain) = unarmor(text) {
        let block = armor(&chain).expect("a chain within the limits");
        assert_eq!(unarmor(&block), Ok(chain));
    }
});

/// Checks that licensees and conditions are read from their print as the same.
fn check_print(assertion: &Assertion) {
    let conditions = assertion.conditions();
    let printed = conditions.map(|conditions| format!("Conditions: {conditions}\n"));
    let text = format!(
        "Authorizer: \"POLICY\"\nLicensees: {}\n{}",
        assertion.licensees(),
        printed.unwrap_or_default()
    );
    if text.len() > CREDENTIAL_BYTES {
        return;
    }
    let read = Assertion::parse(text.as_bytes()).expect("a print is read");
    assert_eq!(read.licensees(), assertion.licensees());
    assert_eq!(read.conditions(), conditions);
}

/// Returns the answer to a query of a fixed action by the licensees of an assertion, so that its
/// conditions are evaluated.
fn answer(assertion: &Assertion) -> Compliance {
    let attributes =
        [("app_domain", "pelago"), ("right", "r"), ("ancestors", "/1/2a/"), ("a", "7")];
    let action: BTreeMap<String, Vec<u8>> =
        attributes.map(|pair| (pair.0.to_owned(), pair.1.as_bytes().to_vec())).into();
    let requesters: Vec<Principal> = assertion.licensees().keys().collect();
    let values = Values::new(vec!["false".to_owned(), "some".to_owned(), "true".to_owned()]);
    let values = values.expect("three values");
    let query = ComplianceQuery { action: &action, requesters: &requesters, values: &values };
    let answer = query.ask([assertion]);
    assert!(answer.value <= values.max());
    answer
}
