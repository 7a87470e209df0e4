//! Parses any bytes as a query of `pelago find`. A query has a canonical text within the limit,
//! which parses as an equal query; an error has a position in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_find::Query;
use pelago_wire::limits::QUERY_BYTES;

fuzz_target!(|bytes: &[u8]| match Query::parse(bytes) {
    Ok(query) => {
        let text = query.to_bytes();
        assert!(text.len() <= QUERY_BYTES);
        let again = Query::parse(&text).expect("a canonical text is a query");
        assert_eq!(again, query);
        assert_eq!(again.to_bytes(), text);
    }
    Err(error) => assert!(error.position().offset <= bytes.len()),
});
