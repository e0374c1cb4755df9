"""Repository rule: an installed library under the labels upstream gives it."""

def _fail(module, package):
    fail(("%s was not found. Install the Debian package that has it:\n" +
          "    apt-get install %s\n" +
          "or run ./bazelw, which installs all that is missing.") %
         (module, package))

def _read_pc(ctx, path):
    """Returns the modules a .pc file requires and its remaining link flags."""
    deps, linkopts = [], []
    for line in ctx.read(path).splitlines():
        key, _, value = line.partition(":")
        if key in ("Requires", "Requires.private"):
            # "absl_base = 20220623, absl_config = 20220623"
            deps += [d.split(" ")[0] for d in value.replace(", ", ",").strip().split(",") if d]
        elif key in ("Libs", "Libs.private"):
            linkopts += [f for f in value.split(" ") if f and not f.startswith("-L")]
    return deps, linkopts

def _pkg_config_impl(ctx):
    pkg_config = ctx.which("pkg-config")
    if not pkg_config:
        _fail("pkg-config", "pkg-config")

    roots = {}  # A set, in order.
    for module in ctx.attr.labels.values():
        roots[module] = True

    # All modules of one library live in one folder, so one call finds it.
    probe = ctx.attr.probe
    result = ctx.execute([pkg_config, "--variable=pcfiledir", probe])
    if result.return_code != 0:
        _fail("%s.pc" % probe, ctx.attr.debian_package)
    pc_dir = result.stdout.strip()
    result = ctx.execute([pkg_config, "--variable=libdir", probe])
    lib_dir = result.stdout.strip()

    # One cc_library a module, with "Requires" as deps: Bazel then derives the
    # link order that static archives need.
    build = ['package(default_visibility = ["//:__subpackages__"])']
    queue = roots.keys()
    for _ in range(1000):  # Starlark has no while.
        if not queue:
            break
        module = queue.pop()
        if module in ctx.attr.without_pc:
            deps, linkopts = ctx.attr.without_pc[module], ["-l" + module]
        else:
            pc = ctx.path("%s/%s.pc" % (pc_dir, module))
            if not pc.exists:
                _fail("%s.pc" % module, ctx.attr.debian_package)
            deps, linkopts = _read_pc(ctx, pc)
        for dep in deps:
            if dep not in roots:
                roots[dep] = True
                queue.append(dep)

        # Prefer the archive, so that binaries run without the -dev packages.
        srcs = []
        archive = "lib%s.a" % module
        if "-l" + module in linkopts and ctx.path("%s/%s" % (lib_dir, archive)).exists:
            linkopts.remove("-l" + module)
            ctx.symlink("%s/%s" % (lib_dir, archive), "pc/" + archive)
            srcs = [archive]
        build.append("cc_library(name = %r, srcs = %r, linkopts = %r, deps = %r)" %
                     (module, srcs, linkopts, [":" + d for d in deps]))
    ctx.file("pc/BUILD.bazel", "\n".join(build) + "\n")

    packages = {}
    for label, module in ctx.attr.labels.items():
        package, _, name = label.rpartition(":")
        packages.setdefault(package, []).append(
            'alias(name = %r, actual = "//pc:%s")' % (name, module),
        )
    for package, aliases in packages.items():
        ctx.file(
            package + "/BUILD.bazel" if package else "BUILD.bazel",
            'package(default_visibility = ["//visibility:public"])\n' +
            "\n".join(aliases) + "\n",
        )

pkg_config_repository = repository_rule(
    implementation = _pkg_config_impl,
    attrs = {
        "debian_package": attr.string(mandatory = True),
        # A module that is there whenever the package is.
        "probe": attr.string(mandatory = True),
        # Label ("absl/strings:str_format") to pkg-config module.
        "labels": attr.string_dict(mandatory = True),
        # Libraries that come without a .pc file, and the modules they need.
        "without_pc": attr.string_list_dict(),
    },
    configure = True,
)
