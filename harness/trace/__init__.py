"""Where two precisions of one model agree: token traces, tables and figures (docs/agreement.md)."""
