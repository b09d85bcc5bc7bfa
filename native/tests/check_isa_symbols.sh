#!/bin/sh
# Usage: check_isa_symbols.sh ISA OBJECT...
# Fails if an object compiled for ISA offers the linker a function outside its own namespace: such a
# function could be chosen for processors that lack the instruction set.
isa=$1
shift
# DW.ref.* is data: the compiler's pointer to the exception routine in builds with sanitizers.
leaks=$(nm -C --defined-only "$@" | grep -E '^[0-9a-f]+ [WVuT] ' |
  grep -v -e "specquant::cpu::$isa::" -e 'DW\.ref\.')
if [ -n "$leaks" ]; then
  echo "Functions compiled for $isa that others could be linked to:"
  echo "$leaks"
  exit 1
fi
