"""A training package: started as ``-m package.train`` from the folder that holds it."""
