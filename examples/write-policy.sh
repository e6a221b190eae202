#!/bin/sh
# A write policy in strfry's format: a JSON object a line on standard input, one on standard output for each.
# This one refuses events whose content speaks of "casino", and takes all others.
while IFS= read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":"\([0-9a-f]\{64\}\)".*/\1/')
	case $line in
	*casino*) printf '{"id":"%s","action":"reject","msg":"blocked: no casinos"}\n' "$id" ;;
	*) printf '{"id":"%s","action":"accept"}\n' "$id" ;;
	esac
done
