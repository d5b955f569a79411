#!/usr/bin/env python3
"""Validates documents against the JSON schemas of docs/schema with python3-jsonschema.

Reads a list of {"schema": "fit", "document": ...} from standard input; prints what is wrong with each, one line for each
finding: number of the document, where in it, what. Exit code 0 when all are valid, 1 when not, 2 when a schema is none.
"""
import json
import pathlib
import sys
import warnings

import jsonschema

SUFFIX = ".schema.json"


def main():
    warnings.simplefilter("ignore", DeprecationWarning)  # RefResolver, which newer versions replace
    folder = pathlib.Path(sys.argv[1])
    schemas = {path.name: json.loads(path.read_text()) for path in folder.glob("*" + SUFFIX)}
    for name, schema in schemas.items():
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            print(f"{name}: no JSON schema: {error.message}")
            return 2
    found = 0
    for number, entry in enumerate(json.load(sys.stdin)):
        schema = schemas[entry["schema"] + SUFFIX]
        resolver = jsonschema.RefResolver(schema["$id"], schema, store=schemas)
        for error in jsonschema.Draft202012Validator(schema, resolver=resolver).iter_errors(entry["document"]):
            found += 1
            print(f"{number} {entry['schema']} /{'/'.join(map(str, error.absolute_path))}: {error.message[:500]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
