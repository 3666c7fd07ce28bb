"""One test a row of docs/seeds.md."""
