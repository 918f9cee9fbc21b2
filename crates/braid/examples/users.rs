//! Users with a secondary index: found by id or by mail address, with both kept in step by transactions.
//!
//! `cargo run --example users`

use braid::{Database, Structure, Table};

#[derive(Debug)]
enum Refused {
    /// There is a user with this id.
    IdTaken,
    /// Another user has the address.
    MailTaken(u64),
    NoSuchUser,
    Store(braid::Error),
}

impl From<braid::Error> for Refused {
    fn from(error: braid::Error) -> Self {
        Self::Store(error)
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::IdTaken => formatter.write_str("there is a user with this id"),
            Self::MailTaken(id) => write!(formatter, "user {id} has this address"),
            Self::NoSuchUser => formatter.write_str("there is no such user"),
            Self::Store(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Refused {}

struct Users {
    db: Database,
    /// Mail address by id.
    by_id: Table,
    /// Id by mail address.
    by_mail: Table,
}

fn id_of(bytes: Vec<u8>) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

impl Users {
    fn open(db: &Database) -> braid::Result<Self> {
        let (by_id, by_mail) = (db.table("users", Structure::BTree)?, db.table("users by mail", Structure::BTree)?);
        Ok(Self { db: db.clone(), by_id, by_mail })
    }

    fn add(&self, id: u64, mail: &str) -> Result<(), Refused> {
        // An error of our own rolls the transaction back; a conflict with another one runs it again.
        self.db.run(|tx| {
            if tx.contains_key(&self.by_id, id.to_be_bytes())? {
                return Err(Refused::IdTaken);
            }
            if let Some(other) = tx.get(&self.by_mail, mail)? {
                return Err(Refused::MailTaken(id_of(other)));
            }
            tx.put(&self.by_id, id.to_be_bytes(), mail)?;
            tx.put(&self.by_mail, mail, id.to_be_bytes())?;
            Ok(())
        })
    }

    fn change_mail(&self, id: u64, mail: &str) -> Result<(), Refused> {
        self.db.run(|tx| {
            let before = tx.get_for_update(&self.by_id, id.to_be_bytes())?.ok_or(Refused::NoSuchUser)?;
            // The address may be the user's own already.
            if let Some(other) = tx.get(&self.by_mail, mail)?.map(id_of).filter(|&other| other != id) {
                return Err(Refused::MailTaken(other));
            }
            tx.delete(&self.by_mail, before)?;
            tx.put(&self.by_mail, mail, id.to_be_bytes())?;
            tx.put(&self.by_id, id.to_be_bytes(), mail)?;
            Ok(())
        })
    }

    fn find(&self, mail: &str) -> braid::Result<Option<u64>> {
        Ok(self.by_mail.get(mail)?.map(id_of))
    }

    /// Ids and addresses that begin with `prefix`, of one moment.
    fn beginning_with(&self, prefix: &str) -> braid::Result<Vec<(String, u64)>> {
        let text = |mail: Vec<u8>| String::from_utf8_lossy(&mail).into_owned();
        self.by_mail.prefix(prefix).map(|pair| pair.map(|(mail, id)| (text(mail), id_of(id)))).collect()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Database::open(directory.path().join("users"))?;
    let users = Users::open(&db)?;
    users.add(1, "ada@example.org")?;
    users.add(2, "grace@example.org")?;
    println!("adding ada twice: {}", users.add(3, "ada@example.org").expect_err("taken"));
    users.change_mail(1, "lovelace@example.org")?;
    assert_eq!((users.find("ada@example.org")?, users.find("lovelace@example.org")?), (None, Some(1)));
    println!("{:?}", users.beginning_with("g")?);
    Ok(db.close()?)
}

#[cfg(test)]
#[test]
fn it_runs_and_both_tables_stay_in_step() -> Result<(), Refused> {
    main().expect("it runs");
    let directory = tempfile::tempdir().expect("a directory");
    let users = Users::open(&Database::open(directory.path().join("db"))?)?;
    users.add(1, "ada@example.org")?;
    users.change_mail(1, "ada@example.org")?;
    assert_eq!(users.find("ada@example.org")?, Some(1), "her own address stays hers");
    assert!(matches!(users.add(1, "grace@example.org"), Err(Refused::IdTaken)));
    assert_eq!((users.find("grace@example.org")?, users.find("ada@example.org")?), (None, Some(1)));
    Ok(())
}
