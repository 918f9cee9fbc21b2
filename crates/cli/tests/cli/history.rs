//! States of a table: listed, read, and gone back to.

use crate::common::{Place, braid};

#[test]
fn a_table_goes_back_to_what_it_was() {
    let place = Place::new();
    let db = place.database();
    let on = |arguments: &[&str]| {
        let (command, rest) = arguments.split_first().expect("a command");
        braid(&[&[*command, &db, "--table", "pages"], rest].concat())
    };
    on(&["put", "a", "one", "--structure", "append"]).expect(0);
    let said = on(&["history"]).expect(0).text();
    assert!(said.contains("no state of table `pages` is retained; --keep"), "{said}");
    let states = on(&["history", "--keep", "5", "--json"]).expect(0).json();
    assert_eq!((states.len(), states[0]["keys"].as_u64()), (1, Some(1)));
    let first = states[0]["seq"].as_u64().expect("a seq").to_string();
    on(&["put", "a", "two"]).expect(0);
    on(&["put", "b", "new"]).expect(0);
    assert!(on(&["history", "--json"]).expect(0).json().len() > 1, "closing makes a checkpoint");
    assert_eq!(on(&["get", "a", "--at", &first]).expect(0).text(), "one");
    assert_eq!(on(&["scan", "--at", &first]).expect(0).text(), "a\tone\n");
    assert_eq!(on(&["scan"]).expect(0).text(), "a\ttwo\nb\tnew\n");
    on(&["get", "b", "--at", &first]).expect(3);

    on(&["rollback", "--to", "1"]).expect(3).says("there are those at");
    let said = &on(&["rollback", "--to", &first, "--json"]).expect(0).json()[0];
    assert_eq!(said["keys"].as_u64(), Some(1));
    let before = said["before"].as_u64().expect("a state").to_string();
    assert_eq!(on(&["scan"]).expect(0).text(), "a\tone\n");
    braid(&["verify", &db]).expect(0);
    let said = on(&["rollback", "--to", &before]).expect(0).text();
    assert!(said.contains("table `pages` is back at the state of seq") && said.contains("2 keys"), "{said}");
    assert_eq!(on(&["scan"]).expect(0).text(), "a\ttwo\nb\tnew\n");
    assert!(on(&["history"]).expect(0).text().lines().count() > 3);
    assert!(braid(&["stats", &db]).expect(0).text().contains("states, which hold"));

    on(&["history", "--keep", "0"]).expect(0);
    on(&["scan", "--at", &first]).expect(3).says("none is");
    braid(&["put", &db, "key", "value", "--table", "tree"]).expect(0);
    braid(&["history", &db, "--table", "tree", "--keep", "1"]).expect(2).says("append");
}
