# Sourced by the scripts beside it and by .ci/run: installing packages and building. Needs bash; moves to the root.
# What it says goes to stderr, so that stdout holds only the answer of the program that is run.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# The packages of packages.apt: its first part (build) or its second (development).
packages_of() {
  awk -v wanted="$1" '
    BEGIN { part = "build" }
    /^# Development/ { part = "development" }
    /^[^#[:space:]]/ && part == wanted { print $1 }' packages.apt
}

# Installs what is missing of one part. Where there is no apt, names the packages once and goes on.
install_packages() {
  local part=$1 installed missing as_root=() log
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    [ -e build/release/build.ninja ] ||
      say "no apt here; needed are the equivalents of these Debian packages: $(packages_of "$part" | xargs)"
    return 0
  fi
  # dpkg-query fails when it does not know one of the names: that one is missing.
  installed=$(packages_of "$part" | xargs dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null || true)
  missing=$(packages_of "$part" | grep -vxFf <(awk '$2 == "installed" { print $1 }' <<<"$installed") || true)
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "cannot install without root or sudo; missing: $(xargs <<<"$missing")"
      return 0
    fi
    as_root=(sudo)
  fi
  say "installing with ${as_root[*]:+${as_root[*]} }apt-get: $(xargs <<<"$missing")"
  mkdir -p build
  log=build/install.log
  if ! {
    "${as_root[@]}" apt-get -q update &&
      # shellcheck disable=SC2086
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 $missing
  } >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    say "installing failed; the whole output is in $log"
    return 1
  fi
}

# Shows how far a build is, "[120/186]", every five seconds of a long one. Reads ninja's output.
show_progress() {
  local line last=$SECONDS
  while IFS= read -r line; do
    case $line in
      \[*/*\]*) [ $((SECONDS - last)) -lt 5 ] || { say "building ${line%%]*}]"; last=$SECONDS; } ;;
    esac
  done
}

# Configures (when it is new or its presets changed) and builds a preset. Quiet unless it fails.
# Arguments: preset, then targets (none: all).
build_preset() {
  local preset=$1 targets=() log
  shift
  [ $# -eq 0 ] || targets=(--target "$@")
  mkdir -p build
  log=build/$preset.log
  # One build at a time: two that write the same folder would spoil each other's files.
  if ! (
    flock 9
    if [ ! -e "build/$preset/build.ninja" ] || [ CMakePresets.json -nt "build/$preset/build.ninja" ] ||
      { [ -n "${ZEROPLAN_WERROR:-}" ] &&
        ! grep -qx "ZEROPLAN_WERROR:BOOL=$ZEROPLAN_WERROR" "build/$preset/CMakeCache.txt"; }; then
      say "building the $preset preset in build/$preset; the first time takes 2 to 4 minutes on two cores"
      cmake --preset "$preset" -DZEROPLAN_WERROR="${ZEROPLAN_WERROR:-OFF}" >"$log" 2>&1 || exit 1
    fi
    cmake --build "build/$preset" "${targets[@]}" 2>&1 | tee "$log" | show_progress
  ) 9>"build/$preset.lock" </dev/null; then
    cat "$log" >&2
    say "building the $preset preset failed"
    return 1
  fi
}
