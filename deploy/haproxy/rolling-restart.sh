#!/usr/bin/env bash
# Restarts the gateways of docker-compose.yml one after the other, with new images or settings, refusing nobody: HAProxy
# sends no more to a gateway, answers under way end, the gateway stops, starts, is ready, and gets requests again.
# The answers that take longer than SECONDS_TO_FINISH are then given TOLLKEEPER_DRAIN_SECONDS more.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${SECONDS_TO_FINISH:-120}

haproxy() {  # a command of HAProxy's runtime API
    docker compose exec -T proxy bash -c 'exec 3<>/dev/tcp/127.0.0.1/9999; echo "$0" >&3; cat <&3' "$1"
}

for gateway in gateway-1 gateway-2; do
    haproxy "set server gateways/$gateway state drain"
    for _ in $(seq "$seconds"); do
        # The fifth field of a server's line in "show stat" is its current sessions.
        [ "$(haproxy 'show stat' | awk -F, -v name="$gateway" '$2 == name { print $5 }')" = 0 ] && break
        sleep 1
    done
    docker compose up --detach --no-deps --force-recreate --wait "$gateway"
    haproxy "set server gateways/$gateway state ready"
    sleep 3  # until HAProxy has found it ready twice
done
