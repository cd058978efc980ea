import sys

# Compiling all tests takes longer than importing them, so it is kept, also where Python is told to
# write no bytecode; but not while tests run: of a module that one writes twice within a second, the
# second could be taken for the first.
WRITES_NO_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False
