# shellcheck shell=bash disable=SC2154  # build-image sets and uses them
# A tree of Debian packages, for build-image: those of a list and what they depend on, as apt resolves it on a
# machine that has none yet, and unpacked.
#
# apt is this host's, with its sources, keys, pins and proxies, but with a state and a cache of its own: what is
# installed here does not matter, and nothing of it changes. Packages are those that apt has verified. None
# is installed: no maintainer script runs, here or anywhere, so what such a script would have made is not there
# (alternatives, users, a bundle of certificates), but for what finish_debian makes.

readonly debian_always=(base-files busybox-static)                # the folders; a shell, and every small command
readonly merged_folders=(bin sbin lib lib32 lib64 libx32)         # are links into /usr, as on every Debian 12
readonly debian_pruned=(usr/share/man usr/share/info usr/share/locale usr/share/lintian usr/share/bug
	usr/share/doc-base usr/share/linda usr/share/groff var/cache/ldconfig)

# Names, from a list with commas or a file with one a line.
read_names() {
	local name
	if [ -f "$1" ]; then
		mapfile -t names < <(sed 's/#.*//' -- "$1" | tr -s ' \t,' '\n' | grep .)
	else
		mapfile -t names < <(tr -s ' ,' '\n' <<<"$1" | grep .)
	fi
	[ ${#names[@]} -gt 0 ] || fail "--debian wants names of packages, divided by commas, or a file with one a line"
	for name in "${names[@]}"; do
		# A minus at its end would be an order to remove it.
		[[ $name =~ ^[a-z0-9][a-z0-9+.-]*[a-z0-9+.](:[a-z0-9-]+)?(=[A-Za-z0-9.+:~-]+)?$ ]] ||
			fail "'$name' is no name of a package, nor is there such a file: give names, divided by commas, or a file with one a line"
	done
}

private_apt() {
	need_tool apt-get apt
	need_tool dpkg-deb dpkg
	mkdir -p "$stage"/apt/{state/lists/partial,cache/archives/partial,log}
	: >"$stage/apt/status"
	cat >"$stage/apt/conf" <<-END
		#clear APT::Update::Pre-Invoke;
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
		#clear DPkg::Pre-Invoke;
		#clear DPkg::Post-Invoke;
		#clear DPkg::Pre-Install-Pkgs;
		Dir::State "$stage/apt/state";
		Dir::State::Lists "$stage/apt/state/lists";
		Dir::State::status "$stage/apt/status";
		Dir::Cache "$stage/apt/cache";
		Dir::Cache::Archives "$stage/apt/cache/archives";
		Dir::Log "$stage/apt/log";
		Binary::apt-get::APT::Keep-Downloaded-Packages "true";
		APT::Install-Recommends "false";
		APT::Install-Suggests "false";
		APT::Cmd::Pattern-Only "true";
		APT::Get::AllowUnauthenticated "false";
		APT::Sandbox::User "root";
		Acquire::AllowInsecureRepositories "false";
		Acquire::AllowDowngradeToInsecureRepositories "false";
	END
}

private_apt_get() {
	DEBIAN_FRONTEND=noninteractive apt-get --config-file="$stage/apt/conf" -qq "$@"
}

# One package, its files where a merged /usr has them.
unpack_package() {
	local moved
	moved=$(IFS='|' && echo "${merged_folders[*]}")
	set +e
	dpkg-deb --fsys-tarfile "$1" | (unpack --transform="s,^\./\(${moved//|/\\|}\)\(/\|$\),./usr/\1\2,S")
	local status=("${PIPESTATUS[@]}")
	set -e
	check_unpacked "$(basename "$1")" "${status[@]}"
}

# Into $stage/packages. In two steps, for packages of a source on this host would stay where they are.
fetch_packages() {
	local plan
	progress "reading apt's sources"
	private_apt_get update >&2 || fail "apt-get update failed (its message is above): are this host's apt sources within reach?"
	progress "fetching packages"
	plan=$(private_apt_get --simulate install "${debian_always[@]}" "${names[@]}" |
		sed -nE 's/^Inst ([^ ]+) \(([^ ]+) .*/\1=\2/p') || fail "apt-get cannot get the packages (its message is above)"
	mkdir "$stage/packages"
	mapfile -t names <<<"$plan"
	(cd "$stage/packages" && private_apt_get download "${names[@]}" >&2) ||
		fail_step "apt-get cannot get the packages (its message is above)"
}

from_debian() {
	local package folder
	read_names "$1"
	private_apt
	fetch_packages
	progress "unpacking ${#names[@]} packages"
	for package in "$stage"/packages/*.deb; do
		# shellcheck disable=SC2016 # dpkg's own variables
		dpkg-deb --show --showformat='package ${Package} ${Version} ${Architecture}\n' "$package" >>"$facts"
		unpack_package "$package"
	done
	rm -rf "$stage/apt" "$stage/packages"
	for folder in "${merged_folders[@]}"; do
		[ ! -d "$tree/usr/$folder" ] || run ln -s "usr/$folder" "$tree/$folder"
	done
}

# Of each package's documents only what says who may copy it.
prune_documents() {
	room rm -rf -- "${debian_pruned[@]}"
	[ ! -d "$tree/usr/share/doc" ] || room find usr/share/doc ! -type d ! -name copyright -delete
	[ ! -d "$tree/usr/share/doc" ] || room find usr/share/doc -mindepth 1 -type d -empty -delete
}

# Where the packages have none: users, names and the like, those of the base image.
add_base_files() {
	local file
	room mkdir -p etc home/agent
	for file in "$here"/base/etc/*; do
		file=etc/$(basename "$file")
		# shellcheck disable=SC2016 # for the room's shell
		room sh -c '[ -e "$1" ] || [ -L "$1" ] || { cat >"$1" && chmod "$2" "$1"; }' sh "$file" "$(base_mode "/$file")" <"$here/base/$file"
	done
	# shellcheck disable=SC2016
	room sh -c '[ -e etc/mtab ] || [ -L etc/mtab ] || ln -s ../proc/self/mounts etc/mtab'
	room sh -c 'chown 1000:1000 home/agent && chmod 0750 home/agent'
}

base_mode() {
	awk -v path="$1" '$1 == "file" && $2 == path { print $3 }' "$here/base.manifest"
}

# The commands that no package has are busybox's.
add_busybox() {
	local applet name
	while read -r applet; do
		name=$(basename "$applet")
		case $name in linuxrc | busybox) ;; *) echo "$name" ;; esac
	done < <(inside /bin/busybox --list-full) >"$stage/applets"
	# shellcheck disable=SC2016 # for the room's shell
	room sh -c 'while read -r name; do
		[ -e "usr/bin/$name" ] || [ -L "usr/bin/$name" ] || [ -e "usr/sbin/$name" ] || [ -L "usr/sbin/$name" ] ||
			ln -s busybox "usr/bin/$name"
	done' <"$stage/applets"
}

# Compiled once, here, and not at every start of a program; by the tree's own python, in the tree. A source that a
# sandbox changes is compiled anew there: the compiled one holds its time and size.
compile_python() {
	local folder folders=()
	[ -x "$tree/usr/bin/python3" ] || return 0
	for folder in "$tree"/usr/lib/python3*; do
		[ ! -d "$folder" ] || folders+=("${folder#"$tree"}")
	done
	[ ${#folders[@]} -gt 0 ] || return 0
	progress "compiling python's modules"
	find "$tree" -exec touch -h -d "$image_date" {} +
	inside /usr/bin/python3 -I -m compileall -q -f -j 1 --invalidation-mode timestamp "${folders[@]}" >&2 ||
		fail "python's modules cannot be compiled (its message is above)"
}

finish_debian() {
	prune_documents
	add_base_files
	add_busybox
	run room ldconfig -r /tree
	room rm -rf -- var/cache/ldconfig
	compile_python
}
