"""What is known about places and variables, as data.

Python tuples rather than TOML files: every start needs them, and `tomllib` takes 18 ms to import.
Paths below the home are written relative to it.
"""

from __future__ import annotations

# Read-only for everybody. Links among them (merged /usr) are kept as links.
SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu")

# Parts of the system that programs look at to know the machine; not the kernel's control files,
# and not /sys as a whole, which brings a dozen nested mounts along.
MACHINE = (
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/var/lib/dpkg",
    "/var/cache/man",
)

# Empty inside: OpenSSH refuses configuration whose owner a user namespace cannot show.
EMPTIED = ("/etc/ssh",)

# Readable by root alone on a sound system, so masked when Ringfence itself runs as root.
ROOT_ONLY = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/polkit-1",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
    "/etc/ppp",
    "/etc/security/opasswd",
)

# Where programs of the host put their sockets: empty where a grant shows all of the machine to read.
SOCKETS = ("/run",)

# Files that distributions keep elsewhere and link to from /etc; the link's target is shown.
LINKED = ("/etc/resolv.conf", "/etc/localtime", "/etc/mtab")

# Kernel interfaces that are never written by a fenced command.
PROC_READ_ONLY = ("/proc/sys",)

# What the kernel tells about the user's keys, to whoever may not use them.
PROC_HIDDEN = ("/proc/keys",)

# Roots of toolchains below the home. A PATH entry inside one of them shows the whole root; any other
# PATH entry shows itself alone.
TOOLCHAINS = (
    ".asdf",
    ".bun",
    ".cargo/bin",
    ".deno",
    ".dotnet",
    ".fnm",
    ".ghcup",
    ".jenv",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".n",
    ".nodenv",
    ".nvm",
    ".opam",
    ".phpenv",
    ".pixi",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman",
    ".volta",
    "anaconda3",
    "go/bin",
    "mambaforge",
    "miniconda3",
    "miniforge3",
)

# A program found in the first needs the second to run.
COMPANIONS = {
    ".cargo/bin": (".rustup",),
    ".local/bin": (".local/lib", ".local/share/uv", ".local/share/pipx", ".local/pipx"),
}

# Credentials and private data below a home: hidden even where a grant shows the home around them.
HIDDEN = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".password-store",
    ".terraform.d",
    ".terraformrc",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".local/share/keyrings",
    ".local/share/fish/fish_history",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/git/credentials",
    ".config/op",
    ".config/doctl",
    ".config/containers",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".mozilla",
    ".thunderbird",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".claude",
    ".claude.json",
    ".codex",
    "Library/Keychains",
)

# Variables of the caller that a command sees; a * stands for any text at a name's start or end.
ENVIRONMENT = (
    "PATH",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "CLICOLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "USER",
    "LOGNAME",
    "SHELL",
    "EDITOR",
    "CI",
    "SOURCE_DATE_EPOCH",
    # Where toolchains that PATH names keep themselves.
    "PYENV_ROOT",
    "PYENV_VERSION",
    "NVM_DIR",
    "NVM_BIN",
    "FNM_DIR",
    "VOLTA_HOME",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOROOT",
    "JAVA_HOME",
    "SDKMAN_DIR",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "VIRTUAL_ENV",
    # Where the machine's certificates lie.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
)

# Left out where the rest of the caller's environment is passed on.
SECRET_ENVIRONMENT = (
    "*KEY*",
    "*SECRET*",
    "*TOKEN*",
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "*CREDENTIAL*",
    "*COOKIE*",
    "*AUTH*",
    "*PRIVATE*",
    "*_DSN",
    "*_PAT",
    "*DATABASE_URL*",
    "AWS_*",
    "AZURE_*",
    "GCP_*",
    "GOOGLE_*",
)

# Never set, whoever asks: they change what a loader or an interpreter does before the program
# starts, or lead to a socket of the host.
FORBIDDEN_ENVIRONMENT = (
    "LD_*",
    "DYLD_*",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "MALLOC_*",
    "BASH_ENV",
    "ENV",
    "BASH_FUNC_*",
    "SHELLOPTS",
    "BASHOPTS",
    "PROMPT_COMMAND",
    "PYTHONSTARTUP",
    "PYTHONBREAKPOINT",
    "PYTHONINSPECT",
    "PERL5OPT",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "DOTNET_STARTUP_HOOKS",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "*_ASKPASS",
    "GIT_CONFIG*",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH*",
    "GIT_TEMPLATE_DIR",
    "NPM_CONFIG_*",
    "npm_config_*",
    "NODE_OPTIONS",
    "*_OPTS",
    "DBUS_*",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "PODMAN_HOST",
    "WAYLAND_DISPLAY",
    "DISPLAY",
    "XAUTHORITY",
    "GPG_*",
    "RINGFENCE*",
)

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
