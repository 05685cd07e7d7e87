# SPDX-License-Identifier: GPL-2.0
#
# The module is built by Kbuild; this file is for people. A script in tools/ stands behind every
# target, for machines without make. `make help` lists the targets.

RELEASE := $(shell uname -r)
KDIR ?= /lib/modules/$(RELEASE)/build
KBUILD = $(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(CURDIR)/build/module

# Can a Rust module be built against the running kernel's tree? It takes the crates' metadata.
NATIVE := $(wildcard $(KDIR)/rust/libkernel.rmeta)

all: modules

ifneq ($(NATIVE),)
modules:
	@mkdir -p build/module
	$(KBUILD) modules

install: modules
	$(KBUILD) modules_install
	depmod -a $(RELEASE)
else
# Debian's headers lack that metadata: a prepared tree of the newest stock kernel takes their place.
modules:
	tools/build module

install: modules
	tools/install
endif

demo lab vm bench:
	tools/$@

test:
	tools/test

test-host:
	tools/test lint host

test-debug:
	tools/test-debug

mutants:
	tools/mutants

clean:
	rm -rf build

distclean: clean
	tools/distclean

help:
	@echo 'make            builds sluice.ko: for the running kernel if its tree can build Rust'
	@echo '                modules, else for the newest stock $(shell sed -nE 's/.* SERIES=([0-9.]+).*/\1/p' tools/lib.sh) kernel of Debian'
	@echo 'make install    installs it for the running kernel (as root)'
	@echo 'make demo       shows sluice beside rdma_rxe in a test VM          (tools/demo)'
	@echo 'make lab        takes things away from running transfers, in that VM (tools/lab)'
	@echo 'make vm         an interactive shell in that VM                    (tools/vm)'
	@echo 'make test       all tests: lint, host, VM                          (tools/test)'
	@echo 'make test-host  only those that need no VM                         (tools/test lint host)'
	@echo 'make test-debug those of the VM on a kernel that checks itself      (tools/test-debug)'
	@echo 'make mutants    breaks the driver on purpose, to see it noticed      (tools/mutants)'
	@echo 'make bench      sluice against rdma_rxe, table and build/bench.json (tools/bench)'
	@echo 'make clean      removes build/'
	@echo 'make distclean  removes what was downloaded and prepared, too      (tools/distclean)'
	@echo
	@echo 'SLUICE_KVM=1 runs the VM with KVM. The cache is $${XDG_CACHE_HOME:-~/.cache}/sluice.'

.PHONY: all modules install demo lab vm bench test test-host test-debug mutants clean distclean help
