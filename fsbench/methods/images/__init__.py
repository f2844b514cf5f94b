"""Methods that train or adapt a network on images, and their loader; to everybody else they are methods like others."""
