#!/bin/bash
# Copies a data set to a node's own disk, checks every byte of it, and removes it in the end.
#
#   launch/stage.sh copy data/imagenet /tmp/mpibow-77      on every node, before training from /tmp/mpibow-77/train
#   launch/stage.sh remove /tmp/mpibow-77
#
# The batch scripts beside it do both where STAGE=data/imagenet is set. `copy` compares the copy with the checksums in
# the data set's manifests, and ends with 1 and removes what it has copied if they differ.

set -u
mark=.mpibow-staged # in a folder that `copy` has made; `remove` removes no other, nor another user's

refuse() {
    echo "$(hostname): $1" >&2
    exit 1
}

copy() { # $1: data set, $2: folder
    local source=$1 target=$2 need free manifests
    [ -d "$source" ] || refuse "$source: there is no such folder; convert the data to it first"
    manifests=$(find -L "$source" -name manifest.json) && [ -n "$manifests" ] ||
        refuse "$source: has no manifest.json in it or below; give a folder that a converter wrote"
    remove "$target" # what an earlier turn of the job has left
    [ ! -e "$target" ] && [ ! -L "$target" ] ||
        refuse "$target: exists already, and is no copy of this script; choose another with STAGE_TO=DIR"
    # mkdir alone, and 700: nobody else can make this folder first, or change the data in it.
    { mkdir -p "$(dirname "$target")" && mkdir -m 700 "$target" && : > "$target/$mark"; } 2>/dev/null ||
        refuse "$target: cannot be written; choose another disk with STAGE_TO=DIR"
    trap 'remove "$target"' EXIT
    need=$(du -skL "$source" | cut -f1)
    free=$(df -Pk "$target" | awk 'NR == 2 { print $4 }')
    [ "$need" -lt "$free" ] ||
        refuse "$target: needs $((need / 1024)) MiB, $((free / 1024)) MiB are free; choose another disk with STAGE_TO=DIR"
    cp -RL "$source/." "$target/" || refuse "$target: the copy has failed"
    find "$target" -name manifest.json -printf '%h\0' | xargs -0 python -m mpibow.records verify ||
        refuse "$target: the copy differs from $source: see above"
    trap - EXIT
    echo "$(hostname): $source is copied to $target and verified"
}

remove() { # $1: folder
    if [ ! -L "$1" ] && [ -O "$1" ] && [ -e "$1/$mark" ]; then rm -rf "${1:?}"; fi
}

case ${1:-}/$# in
    copy/3) copy "$2" "$3" ;;
    remove/2) remove "$2" ;;
    *) echo "usage: stage.sh copy DATA FOLDER | stage.sh remove FOLDER" >&2 && exit 2 ;;
esac
