"""Where the first API had its backend on Ray, of which only what needs no Ray is here."""
