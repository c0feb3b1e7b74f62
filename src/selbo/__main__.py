"""`python -m selbo`: the same as the command `selbo`."""

from selbo.cli.main import main

if __name__ == "__main__":
    main()
