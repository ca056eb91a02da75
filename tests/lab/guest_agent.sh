# SPDX-License-Identifier: Apache-2.0
# What libvirt asks of QEMU's guest agent to freeze file systems, for the small guest, whose one is at /mnt. Says what it
# was asked.
port=$(echo /dev/vport*p1)
exec 3<>$port
while true; do
	while read -r line <&3; do
		case $line in
		*guest-sync*) answer=${line##*'"id":'} answer=${answer%%\}*} ;;
		*guest-fsfreeze-freeze*) echo freeze; fsfreeze --freeze /mnt; answer=1 ;;
		*guest-fsfreeze-thaw*) fsfreeze --unfreeze /mnt; answer=1; echo thaw ;;
		esac
		echo "{\"return\": $answer}" >&3
	done
	sleep 0.2
done
