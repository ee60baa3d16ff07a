#!/usr/bin/env bash
# Tries an image: it trains on the example in it and answers one prediction, as user 10001 without a writable root
# filesystem or any capability.
#
#   scripts/try_image.sh IMAGE
set -euo pipefail
image=$1
volume=$(docker volume create)
hardened=(--user 10001:10001 --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges)
service=
end() {
  if [ -n "$service" ]; then
    docker logs "$service" >&2 || true
    docker rm --force "$service" >/dev/null
  fi
  docker volume rm "$volume" >/dev/null
}
trap end EXIT
docker run --rm "${hardened[@]}" --volume "$volume:/checkpoints" "$image" train examples/cars.csv \
  --target Miles_per_Gallon --config examples/cars.toml --name cars --quick --checkpoints /checkpoints
service=$(docker run --detach "${hardened[@]}" --volume "$volume:/checkpoints:ro" --publish 127.0.0.1::8000 "$image")
address=http://$(docker port "$service" 8000/tcp | head -n 1)
for _ in $(seq 120); do
  curl --silent --fail "$address/readyz" >/dev/null && break
  sleep 1
done
answer=$(docker exec "$service" murho predict examples/cars.csv --model cars --url http://127.0.0.1:8000)
test "$(wc -l <<<"$answer")" -gt 300
test "$(docker exec "$service" id -u)" = 10001
docker exec "$service" sh -c '! touch /probe 2>/dev/null'
echo "The image answers predictions as user 10001, on a filesystem that is read-only."
