#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# User data of a guest: a repository in a directory, with packages that stand in for those that roles fetch.
set -eu
mkdir -p /srv/packages /srv/made
cd /srv/made
package() { # NAME VERSION: what lies in files/ becomes a package
	mkdir files/DEBIAN
	printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody\nDescription: stand-in\n' "$1" "$2" >files/DEBIAN/control
	dpkg-deb --build --root-owner-group files "/srv/packages/$1.deb" >/dev/null
	rm -r files
}
program() { # PATH: a script from standard input
	mkdir -p "files/${1%/*}"
	cat >"files/$1"
	chmod 755 "files/$1"
}
program usr/local/cuda-12.4/bin/nvcc <<'SCRIPT'
#!/bin/sh
echo "Cuda compilation tools, release 12.4, V12.4.131"
SCRIPT
ln -s cuda-12.4 files/usr/local/cuda
package cuda-toolkit-12-4 12.4.1-1
mkdir -p files/usr/lib/x86_64-linux-gnu
echo 'unsigned long cudnnGetVersion(void) { return 91301; }' >cudnn.c
cc -shared -fPIC -o files/usr/lib/x86_64-linux-gnu/libcudnn.so.9 cudnn.c
package libcudnn9-cuda-12 9.13.1.26-1
program usr/bin/nvidia-ctk <<'SCRIPT'
#!/bin/sh
case "$1 $2" in
"runtime configure") echo '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}' >"${4#--config=}" ;;
"cdi generate") echo 'cdiVersion: 0.5.0' ;;
*) echo "NVIDIA Container Toolkit CLI version 1.17.4" ;;
esac
SCRIPT
package nvidia-container-toolkit 1.17.4-1
program usr/bin/docker <<'SCRIPT'
#!/bin/sh
# it has the runtimes that its configuration had when its service began
[ "$1" = info ] && exec cat /run/docker-has
echo "Docker version 26.1.5, build a72d7cd"
SCRIPT
program usr/lib/systemd/system/docker.service <<'UNIT'
[Service]
ExecStartPre=/bin/cp /etc/docker/daemon.json /run/docker-has
ExecStart=/usr/bin/sleep infinity
UNIT
package docker.io 26.1.5-1
program usr/lib/systemd/system/nvidia-dcgm-exporter.service <<'UNIT'
[Service]
ExecStart=/usr/bin/python3 -c "import http.server as h, os; h.HTTPServer(('', int(os.environ['DCGM_EXPORTER_LISTEN'][1:])), h.SimpleHTTPRequestHandler).serve_forever()"
[Install]
WantedBy=multi-user.target
UNIT
package datacenter-gpu-manager-exporter 4.1.1-1
cd /srv/packages
for file in *.deb; do
	dpkg-deb -f "$file"
	printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -d' ' -f1)"
done >Packages
echo 'deb [trusted=yes] file:/srv/packages ./' >/etc/apt/sources.list.d/packages.list
touch /srv/ready
