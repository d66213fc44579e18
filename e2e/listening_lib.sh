# At which port a server listens that was told to take a free one. Sourced; sets no option of the shell.

# listening_port PROCESS: in its network, whichever that is.
listening_port() {
  local sockets hex
  sockets=$(readlink /proc/"$1"/fd/* 2>/dev/null | sed -n 's/^socket:\[\(.*\)\]$/\1/p' | tr '\n' ' ')
  hex=$(awk -v sockets="$sockets" 'BEGIN { split(sockets, list, " "); for (i in list) own[list[i]] = 1 }
    $4 == "0A" && $10 in own { split($2, ends, ":"); print ends[2]; exit }' "/proc/$1/net/tcp" 2>/dev/null)
  if [ -n "$hex" ]; then echo $((16#$hex)); fi
}

# await_port PROCESS: the same, once it does. Fails where it has ended, or does not within half a minute.
await_port() {
  local port
  for _ in $(seq 300); do
    port=$(listening_port "$1")
    if [ -n "$port" ]; then
      echo "$port"
      return
    fi
    kill -0 "$1" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}
