"""Write the support matrix (`make matrix`): data for the command line, and a page of the documentation."""

from tests.matrix.derivation import matrix
from tests.matrix.files import DATA, PAGE, as_data, as_page

if __name__ == "__main__":
    made = matrix()
    DATA.write_text(as_data(made), encoding="utf-8")
    PAGE.write_text(as_page(made), encoding="utf-8")
