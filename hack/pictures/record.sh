#!/bin/bash
# Records `make demo` as docs/img/demo.svg. Where a program is missing the committed file stays.
# Needs bin/demo (make story), asciinema (Debian) and npx (npm, which fetches svg-term-cli).
set -euo pipefail
cd "$(dirname "$0")/../.."

out=docs/img/demo.svg
for program in asciinema npx; do
	if ! command -v "$program" >/dev/null; then
		echo "record.sh: $program is not installed; $out stays as it is"
		exit 0
	fi
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

asciinema rec -q --overwrite --cols 80 --rows 24 -i 1 -c 'echo "$ make demo"; exec bin/demo' "$dir/demo.cast"
# The last picture stays for four seconds before it begins again.
last=$(tail -n 1 "$dir/demo.cast" | sed -E 's/^\[([0-9]+).*/\1/')
for more in 1 2 3 4; do
	echo "[$((last + more)).9, \"o\", \" \"]" >>"$dir/demo.cast"
done
if ! npx --yes svg-term-cli@2.1.1 --in "$dir/demo.cast" --out "$dir/demo.svg" --window --no-cursor --width 80 --height 24; then
	echo "record.sh: svg-term-cli cannot be run; $out stays as it is"
	exit 0
fi
# Who wants no motion sees the end, and who cannot see has a title.
sed -i -E '1s|^(<svg [^>]*)>|\1 role="img" aria-label="Recording of make demo"><style>@media (prefers-reduced-motion:reduce){*{animation-play-state:paused!important;animation-delay:-'"$((last + 2))"'s!important}}</style>|' "$dir/demo.svg"

if grep -oE "$(pwd)[^<]*|$HOME/[^<]*" "$dir/demo.svg"; then
	echo "record.sh: the recording names a path of this machine" >&2
	exit 1
fi
size=$(stat -c %s "$dir/demo.svg")
if ((size > 300000)); then
	echo "record.sh: the recording has $size bytes, more than 300,000" >&2
	exit 1
fi
cp "$dir/demo.svg" "$out"
echo "$out: $size bytes"
