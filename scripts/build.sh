#!/usr/bin/env bash
# Builds wheel and sdist of both distributions into FOLDER/murho and FOLDER/murho-client, the same bytes each time:
# times are those of the last commit. Builds everything twice to prove it, and has twine check what PyPI will show.
#
#   scripts/build.sh [FOLDER]     (dist)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "${1:-dist}")
python=${PYTHON:-python3}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=.
for turn in 1 2; do
  git clone --quiet "$source" "$work/tree$turn"
  source=$work/tree1 # the same commit, whatever happens here meanwhile
  for project in murho:. murho-client:client; do
    "$python" -m build --no-isolation --outdir "$work/$turn/${project%%:*}" "$work/tree$turn/${project##*:}" >"$work/log" 2>&1 ||
      { cat "$work/log" >&2; exit 1; }
    # The archive of the source would have the times of its files: it is packed again.
    archive=$(echo "$work/$turn/${project%%:*}"/*.tar.gz) folder=$work/unpacked$turn
    mkdir -p "$folder"
    tar --extract --gzip --file "$archive" --directory "$folder"
    tar --create --directory "$folder" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
      --mode=u=rwX,go=rX "$(basename "$archive" .tar.gz)" | gzip --no-name >"$archive"
  done
done
diff --recursive --brief "$work/1" "$work/2"
"$python" -m twine check --strict "$work"/1/*/*
mkdir -p "$out"
cp -r "$work"/1/. "$out"
