//! Many tasks of an async runtime on one database: commits that are awaited, and lookups that gather into batches.
//! Braid itself depends on no runtime; this one is tokio.
//!
//! `cargo run --example tasks`

use braid::{Database, Durability, Structure, WriteBatch};

const TASKS: u32 = 1000;

async fn serve(db: Database) -> braid::Result<u64> {
    // Opening a table may create it, which waits: to be done before the tasks begin.
    let table = db.table("visits", Structure::BTree)?;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (db, table) = (db.clone(), table.clone());
            tokio::spawn(async move {
                let mut batch = WriteBatch::new();
                batch.put(&table, task.to_be_bytes(), format!("visit {task}"));
                // The commit has its place now, in the order of all commits, and is durable when awaited. One flush
                // serves all tasks that wait.
                let seq = db.submit(&batch, Durability::Sync)?.await?;
                // The keys that all tasks want at this time are read as one batch.
                let found = table.lookup(task.to_be_bytes()).await?;
                assert_eq!(found, Some(format!("visit {task}").into_bytes()));
                Ok::<_, braid::Error>(seq.0)
            })
        })
        .collect();
    let mut last = 0;
    for task in tasks {
        last = task.await.expect("no panic")?.max(last);
    }
    Ok(last)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Database::open(directory.path().join("visits"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let last = runtime.block_on(serve(db.clone()))?;
    let log = db.stats()?.log;
    println!("{TASKS} tasks, last commit {last}, {} flushes of the log", log.flushes);
    drop(runtime);
    Ok(db.close()?)
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().expect("it runs");
}
