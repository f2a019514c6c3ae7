"""Package of the tests, so that `import tests` never finds a package of this name in site-packages."""
