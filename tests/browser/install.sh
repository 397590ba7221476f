#!/bin/sh
# Install what the browser tests need: Chromium and its driver from Debian, axe-core from npm.
# Usage: install.sh FOLDER, a folder for axe-core.
set -eu
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "The browser tests need chromium and chromedriver: install them with your package" \
            "manager (Debian: chromium chromium-driver), or run make test-browser as root." >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null
fi
if command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --no-save --ignore-scripts --prefix "$1" axe-core@4 >&2
else
    echo "npm was not found: the test of accessibility by axe-core is skipped." >&2
fi
